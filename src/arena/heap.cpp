#include "arena/heap.hpp"

#include <iterator>

#include "base/check.hpp"

namespace verbena::arena {
namespace {

constexpr uint64_t kMostAtOnce = uint64_t{1} << 40;  // so that rounding up can't wrap around

}  // namespace

uint64_t Heap::allocate(uint64_t size) {
  if (size > kMostAtOnce) return 0;
  size = size == 0 ? 64 : (size + 63) & ~uint64_t{63};
  const std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    const uint64_t offset = it->first;
    const uint64_t rest = it->second - size;
    used_[offset] = size;
    free_.erase(it);
    if (rest > 0) free_[offset + size] = rest;
    return offset;
  }
  return 0;
}

void Heap::release(uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset);
  CHECK(used != used_.end());
  uint64_t size = used->second;
  used_.erase(used);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

}  // namespace verbena::arena
