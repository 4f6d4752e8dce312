// What a request does to the target's memory: WRITE, READ, atomics, and the placing of long messages.
#include <algorithm>
#include <array>

#include "verbs/access_burst.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/responder.hpp"
#include "verbs/scatter.hpp"

namespace verbena::verbs {

using engine::Copied;
using engine::RemoteRange;
using engine::RemoteUse;
using engine::Tail;
using engine::Verdict;

namespace {

uint32_t access_for(RemoteUse use) {
  switch (use) {
    case RemoteUse::kRead:
      return IBV_ACCESS_REMOTE_READ;
    case RemoteUse::kWrite:
      return IBV_ACCESS_REMOTE_WRITE;
    case RemoteUse::kAtomic:
      return IBV_ACCESS_REMOTE_ATOMIC;
  }
  return 0;
}

uint32_t access_for(engine::AtomicKind kind) {
  return kind == engine::AtomicKind::kWrite ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
}

Verdict verdict_of(Copied copied) {
  switch (copied) {
    case Copied::kAll:
      return Verdict::kDone;
    case Copied::kFaultHere:
      return Verdict::kFaultHere;
    case Copied::kFaultThere:
      return Verdict::kUnmapped;
    case Copied::kOwnerGone:
      return Verdict::kSilence;
  }
  return Verdict::kSilence;
}

}  // namespace

Verdict Responder::find(const RemoteRange& range, uint32_t access, Region& region) {
  if (!invalidating_.empty() && being_invalidated(range.key)) return call_for_merge();
  return check_key(owner_->arena(),
                   {.key = range.key,
                    .address = range.address,
                    .length = range.length,
                    .domain = domain_,
                    .access = access,
                    .queue_pair = target_.value},
                   region);
}

Verdict Responder::may_invalidate(const engine::Arrival& arrival) const {
  if (!arrival.invalidates) return Verdict::kDone;
  return check_invalidation(owner_->arena(), arrival.imm, domain_, target_.value);
}

bool Responder::being_invalidated(uint32_t key) {
  const auto all_taken = [&] {
    const std::lock_guard lock(port_->lock);
    return port_->ring.all_taken(last_invalidation_);
  };
  if (all_taken() || (owner_->empty_rings(cq_) && all_taken())) {
    invalidating_.clear();
    return false;
  }
  return std::ranges::find(invalidating_, key) != invalidating_.end();
}

Verdict Responder::check(const RemoteRange& range, RemoteUse use) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  const uint32_t access = access_for(use);
  if ((access_ & access) == 0) return Verdict::kNotEnabled;
  if (range.length == 0) return Verdict::kDone;
  Region region;
  if (auto found = find(range, access, region); found != Verdict::kDone) return found;
  return use == RemoteUse::kRead && awaits_message(region.address, range.length) ? call_for_merge()
                                                                                 : Verdict::kDone;
}

Verdict Responder::write(const RemoteRange& range, std::span<const iovec> from, Tail tail) {
  return move(range, IBV_ACCESS_REMOTE_WRITE, from, tail, false);
}

Verdict Responder::read(const RemoteRange& range, std::span<const iovec> into, Tail tail) {
  return move(range, IBV_ACCESS_REMOTE_READ, into, tail, true);
}

Verdict Responder::move(const RemoteRange& range, uint32_t access, std::span<const iovec> ours, Tail tail,
                        bool reading) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  if (range.length == 0) return Verdict::kDone;
  if (std::byte* const memory = in_burst(range, access); memory != nullptr) {
    if (reading)
      copy_in_order(ours.front().iov_base, memory, range.length, Tail::kAnyOrder);
    else
      copy_in_order(memory, ours.front().iov_base, range.length, tail);
    return Verdict::kDone;
  }
  HazardGuard guard(*owner_, requester_.accessor);
  if (!guard.add(range.key)) return Verdict::kNoRoom;
  guard.seal();
  Region region;
  if (auto found = find(range, access, region); found != Verdict::kDone) return found;
  if (region.mode == arena::MrMode::kFile)
    if (const auto here = owner_->mapped(range.key, range.address, range.length); here != nullptr)
      return copy_mapped(here.get(), ours, tail, reading) ? Verdict::kDone : Verdict::kFaultHere;
  if (requester_.by_network) return move_packet(ours.front(), region, tail, reading);
  const iovec theirs{reinterpret_cast<void*>(region.address), range.length};
  auto& memory = owner_->memory();
  return verdict_of(reading ? memory.read(ours, {&theirs, 1}, tail) : memory.write(ours, {&theirs, 1}, tail));
}

std::byte* Responder::in_burst(const RemoteRange& range, uint32_t access) const {
  if (!requester_.by_network || range.length < kPartOfMore) return nullptr;
  return AccessBurst::find({*owner_, requester_.accessor, AccessSide::kTarget},
                           {range.key, range.address, range.length, domain_, access, target_.value},
                           access == IBV_ACCESS_REMOTE_READ ? Access::kRead : Access::kWrite);
}

size_t Responder::write_more(const RemoteRange& range, size_t each, Tail tail,
                             engine::MorePayloads& payloads) {
  std::byte* const memory = reach() == Verdict::kDone ? in_burst(range, IBV_ACCESS_REMOTE_WRITE) : nullptr;
  return memory == nullptr ? 0 : copy_payloads(memory, each, range.length / each, tail, payloads);
}

// Into the piece of the receive that the message has come to, as far as that goes. A shared receive may be
// taken away from its queue pair meanwhile, so place() looks at each packet's.
size_t Responder::place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) {
  if (reach() != Verdict::kDone || shared_ || !requester_.by_network || each < kPartOfMore) return 0;
  const auto* receive = current_receive();
  if (receive == nullptr) return 0;
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(receive + 1);
  const unsigned count = receive->count.get();
  if (count > (receives_stride_ - sizeof *receive) / sizeof *pieces || count > kMaxSge) return 0;
  unsigned piece = 0;
  while (piece < count && offset >= pieces[piece].length.get()) offset -= pieces[piece++].length.get();
  if (piece == count) return 0;
  const size_t most = std::min<size_t>((pieces[piece].length.get() - offset) / each, payloads.most());
  if (most == 0) return 0;
  std::byte* const memory = AccessBurst::find({*owner_, requester_.accessor, AccessSide::kTarget},
                                              {.key = pieces[piece].lkey.get(),
                                               .address = pieces[piece].address.get() + offset,
                                               .length = most * each,
                                               .domain = receives_domain_,
                                               .access = IBV_ACCESS_LOCAL_WRITE},
                                              Access::kWrite);
  return memory == nullptr ? 0 : copy_payloads(memory, each, most, Tail::kAnyOrder, payloads);
}

const std::byte* Responder::in_place(const RemoteRange& range) {
  return reach() == Verdict::kDone ? in_burst(range, IBV_ACCESS_REMOTE_READ) : nullptr;
}

Verdict Responder::move_packet(const iovec& packet, const Region& region, Tail tail, bool reading) const {
  auto* bytes = static_cast<std::byte*>(packet.iov_base);
  const iovec memory{reinterpret_cast<void*>(region.address), packet.iov_len};
  const uint64_t end = packet.iov_len >= kPartOfMore ? region.end : 0;
  const bool moved = reading ? gather_own(bytes, {&memory, 1}, end)
                             : scatter_own({&memory, 1}, bytes, packet.iov_len, tail, end);
  return moved ? Verdict::kDone : Verdict::kUnmapped;
}

Verdict Responder::place(uint64_t offset, std::span<const iovec> from, Tail tail) {
  return confirmed(place_now(offset, from, tail));
}

Verdict Responder::place_now(uint64_t offset, std::span<const iovec> from, Tail tail) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  if (shared_ && !claim_) return Verdict::kSilence;
  const auto* receive = current_receive();
  if (receive == nullptr) return Verdict::kCorrupt;
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(receive + 1);
  const unsigned count = receive->count.get();
  if (count > (receives_stride_ - sizeof *receive) / sizeof *pieces || count > kMaxSge)
    return Verdict::kCorrupt;

  const uint64_t length = total_length(from);
  // What of it this part of the message falls into: the first `used` of them; to clear them all takes longer.
  std::array<ScatterPiece, kMaxSge> covered;
  std::array<iovec, kMaxSge> theirs;
  unsigned used = 0;
  uint64_t begin = 0;
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t size = pieces[i].length.get();
    const uint64_t first = std::max(begin, offset);
    const uint64_t last = std::min(begin + size, offset + length);
    if (first < last)
      covered[used++] = {pieces[i].address.get() + (first - begin), last - first, pieces[i].lkey.get()};
    begin += size;
  }
  HazardGuard guard(*owner_, requester_.accessor);
  for (unsigned i = 0; i < used; ++i)
    if (!guard.add(covered[i].key)) return Verdict::kNoRoom;
  guard.seal();
  // What was read was the receive's, if its queue pair is still there. One that leaves gives a shared receive
  // to others, unless it sees that we are at it.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (reach() != Verdict::kDone || (shared_ && !claim_)) return Verdict::kSilence;
  uint64_t found_bytes = 0;
  uint64_t region_end = 0;
  for (unsigned i = 0; i < used; ++i) {
    Region region;
    const KeyUse use{covered[i].key, covered[i].address, covered[i].length, receives_domain_,
                     IBV_ACCESS_LOCAL_WRITE};
    if (check_key(owner_->arena(), use, region) != Verdict::kDone) return Verdict::kBadReceive;
    theirs[i] = {reinterpret_cast<void*>(region.address), covered[i].length};
    region_end = region.end;
    found_bytes += covered[i].length;
  }
  if (found_bytes != length) return Verdict::kTooLong;
  if (requester_.by_network) {
    const auto* bytes = static_cast<const std::byte*>(from.front().iov_base);
    const bool placed = scatter_own({theirs.data(), used}, bytes, length, tail, used == 1 ? region_end : 0);
    return placed ? Verdict::kDone : Verdict::kBadReceive;
  }
  const auto verdict = verdict_of(owner_->memory().write(from, {theirs.data(), used}, tail));
  return verdict == Verdict::kUnmapped ? Verdict::kBadReceive : verdict;
}

bool Responder::receive_touches(const arena::ReceiveEntry& receive, uint64_t address, uint64_t length) const {
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(&receive + 1);
  const unsigned most = static_cast<unsigned>((receives_stride_ - sizeof receive) / sizeof *pieces);
  for (unsigned i = 0; i < std::min<unsigned>(receive.count.get(), most); ++i) {
    Region region;
    const KeyUse use{pieces[i].lkey.get(), pieces[i].address.get(), pieces[i].length.get(), receives_domain_,
                     0};
    if (check_key(owner_->arena(), use, region) == Verdict::kDone && region.address < address + length &&
        address < region.address + use.length)
      return true;
  }
  return false;
}

bool Responder::awaits_message(uint64_t address, uint64_t length) {
  if (last_in_ring_ == 0) return false;
  const std::lock_guard lock(port_->lock);
  if (port_->ring.all_taken(last_in_ring_)) {
    last_in_ring_ = 0;
    return false;
  }
  bool touches = false;
  uint32_t receive = consumed_;
  port_->ring.look_back(target_.value, [&](arena::RecordKind kind, uint16_t shared) {
    if (kind == arena::RecordKind::kFail) return;
    --receive;
    const auto* entry = shared_ ? shared_.entry(shared) : receive_entry(receive);
    touches = touches || (kind == arena::RecordKind::kSend && entry != nullptr &&
                          receive_touches(*entry, address, length));
  });
  return touches;
}

Verdict Responder::atomic(const engine::AtomicRequest& request, uint64_t& before) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  const uint32_t access = access_for(request.kind);
  if ((access_ & access) == 0) return Verdict::kNotEnabled;
  if (request.address % sizeof(uint64_t) != 0) return Verdict::kMisaligned;
  HazardGuard guard(*owner_, requester_.accessor);
  if (!guard.add(request.key)) return Verdict::kNoRoom;
  guard.seal();
  Region region;
  const RemoteRange range{request.key, request.address, sizeof(uint64_t)};
  if (auto found = find(range, access, region); found != Verdict::kDone) return found;
  if (region.address % sizeof(uint64_t) != 0) return Verdict::kMisaligned;
  if (awaits_message(region.address, sizeof(uint64_t))) return call_for_merge();
  const auto here = owner_->atomic_target(request, region);
  // In the owner's own process there is nobody else to ask: the memory isn't there.
  if (here == nullptr)
    return lane_ == nullptr && requester_.accessor == target_.slot() ? Verdict::kUnmapped : Verdict::kAsk;
  before = run_atomic(request, here.get());
  return Verdict::kDone;
}

}  // namespace verbena::verbs
