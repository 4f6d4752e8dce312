// Room in a segment for things of any size. The owner keeps the books in its own memory, so nothing that a
// peer writes can confuse them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace verbena::arena {

// First fit over free ranges that are merged when they touch: allocations are few and live long (queues).
class Heap {
 public:
  Heap(uint64_t begin, uint64_t end) { free_[begin] = end - begin; }

  // An offset aligned to 64 bytes; 0: no room. Content is what was there before.
  [[nodiscard]] uint64_t allocate(uint64_t size);
  void release(uint64_t offset);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset to size
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace verbena::arena
