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
  const uint32_t mode = entry.mode.get();
  const uint64_t sink = entry.inode.get();
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.word.get() != word) return Verdict::kBadKey;  // deregistered or changed under our eyes

  found.mode = static_cast<arena::MrMode>(mode & 0xff);
  if ((access & arena::kWindow) != 0) {
    if (use.queue_pair == 0) return Verdict::kBadKey;
    if (mode >> 8 != 0 && mode >> 8 != use.queue_pair) return Verdict::kWrongQueuePair;
  }
  if (domain != use.domain) return Verdict::kWrongDomain;
  if ((access & use.access) != use.access) return Verdict::kNoAccess;
  const uint64_t offset = use.address - iova;
  if (offset > length || use.length > length - offset) return Verdict::kBadBounds;
  if (found.mode == arena::MrMode::kNull) [[unlikely]] {
    if (use.queue_pair != 0) return Verdict::kBadKey;
    found.address = (use.access & IBV_ACCESS_LOCAL_WRITE) != 0 ? sink : address;
    found.end = found.address + use.length;
    return Verdict::kDone;
  }
  found.address = address + offset;
  found.end = address + length;
  return Verdict::kDone;
}

Verdict check_invalidation(const arena::ProcessArena& owner, uint32_t key, uint32_t domain,
                           uint32_t queue_pair) {
  const uint32_t index = key >> 8;
  if (index >= arena::kMrEntries) return Verdict::kBadKey;
  const arena::MrEntry& entry = owner.mr(index);
  const uint64_t word = entry.word.acquire();
  if (word == 0 || (word & 0xff) != (key & 0xff)) return Verdict::kBadKey;
  const uint32_t owning = entry.domain.get();
  const uint32_t access = entry.access.get();
  const uint32_t bound_to = entry.mode.get() >> 8;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.word.get() != word) return Verdict::kBadKey;
  if ((access & arena::kWindow) == 0 || bound_to == 0) return Verdict::kNotWindow;
  if (bound_to != queue_pair) return Verdict::kWrongQueuePair;
  return owning == domain ? Verdict::kDone : Verdict::kWrongDomain;
}

}  // namespace verbena::verbs
