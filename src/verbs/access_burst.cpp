#include "verbs/access_burst.hpp"

#include <algorithm>

namespace verbena::verbs {
namespace {

constexpr uint64_t kBlock = 64 << 10;  // proven at a time

// The end of the block in which those bytes end. A burst may begin anywhere in a block; that it ends where
// all others do has one stamp serve them all.
uint64_t block_end(uint64_t address, uint64_t length) { return (address + length + kBlock - 1) & -kBlock; }

// A program's buffers are used again and again: these remember 256 MiB of them, and only what is used takes
// memory.
ProofStamp& stamp_for(uint64_t end, Access access) {
  static constinit std::array<std::array<ProofStamp, 4096>, 2> stamps;
  auto& kind = stamps[static_cast<size_t>(access)];
  return kind[end / kBlock % kind.size()];
}

}  // namespace

std::byte* AccessBurst::Held::find(const Side& side, const KeyUse& use, Access access) {
  if (found_) {
    const KeyUse& held = found_->use;
    const uint64_t offset = use.address - held.address;
    if (found_->owner == &side.owner && held.key == use.key && held.domain == use.domain &&
        held.access == use.access && held.queue_pair == use.queue_pair && offset <= held.length &&
        use.length <= held.length - offset &&
        // A burst that lasts longer, for its thread may lose the core, proves anew.
        ProofStamp::believed(found_->proven_at, kProofMicroseconds))
      return found_->base + offset;
  }
  forget();
  std::byte* const found = look_up(side, use, access);
  if (found == nullptr) forget();
  return found;
}

std::byte* AccessBurst::Held::look_up(const Side& side, const KeyUse& use, Access access) {
  guard_.emplace(side.owner, side.accessor, side.side);
  if (!guard_->add(use.key)) return nullptr;
  guard_->seal();
  Region region;
  if (check_key(side.owner.arena(), use, region) != engine::Verdict::kDone) return nullptr;
  const uint64_t end = block_end(region.address, use.length);
  const uint64_t length = std::max(use.length, std::min(end, region.end) - region.address);
  auto* const data = reinterpret_cast<std::byte*>(region.address);
  const auto proven = accessible_again(data, length, access, stamp_for(end, access), mapping_);
  if (!proven) return nullptr;
  found_ = {.owner = &side.owner, .use = use, .base = data, .proven_at = *proven};
  found_->use.length = length;
  return data;
}

}  // namespace verbena::verbs
