#include "verbs/key_check.hpp"

#include <infiniband/verbs.h>

namespace verbena::verbs {

using engine::Verdict;

Verdict check_key(const arena::ProcessArena& owner, const KeyUse& use, Region& found) {
  found.index = use.key >> 8;
  if (found.index >= arena::kMrEntries) return Verdict::kBadKey;
  const arena::MrEntry& entry = owner.mr(found.index);
  const uint64_t word = entry.word.acquire();
  if (word == 0 || (word & 0xff) != (use.key & 0xff)) return Verdict::kBadKey;
  const uint64_t iova = entry.iova.get();
  const uint64_t length = entry.length.get();
  const uint64_t address = entry.address.get();
  const uint32_t domain = entry.domain.get();
  const uint32_t access = entry.access.get();
  found.mode = static_cast<arena::MrMode>(entry.mode.get());
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.word.get() != word) return Verdict::kBadKey;  // deregistered or changed under our eyes

  if (domain != use.domain) return Verdict::kWrongDomain;
  if ((access & use.access) != use.access) return Verdict::kNoAccess;
  const uint64_t offset = use.address - iova;
  if (offset > length || use.length > length - offset) return Verdict::kBadBounds;
  found.address = address + offset;
  found.end = address + length;
  return Verdict::kDone;
}

}  // namespace verbena::verbs
