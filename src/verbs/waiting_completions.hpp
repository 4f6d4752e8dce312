// Completions that wait to be polled: a ring that grows to what was ever needed and then allocates no more.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>

#include "base/result.hpp"
#include "verbs/queue_memory.hpp"

namespace verbena::verbs {

class WaitingCompletions {
 public:
  struct Entry {
    ibv_wc completion;
    uint64_t stamp_ns;  // when it completed; 0 where nobody asked
  };

  // Room from the start, in memory that the program's allocator gives.
  [[nodiscard]] base::Result<void> reserve(QueueAllocator& allocator, uint32_t count) {
    const uint32_t capacity = std::bit_ceil(count);
    auto memory = QueueMemory::make(&allocator, capacity * sizeof(Entry), QueueUse::kCompletionQueue);
    if (!memory) return std::unexpected(memory.error());
    memory_ = std::move(*memory);
    capacity_ = capacity;
    return {};
  }

  [[nodiscard]] bool empty() const { return head_ == tail_; }
  [[nodiscard]] uint32_t size() const { return tail_ - head_; }
  [[nodiscard]] const Entry& front() const { return entries()[head_ & (capacity_ - 1)]; }
  void pop_front() { ++head_; }
  // False: no memory.
  [[nodiscard]] bool push_back(const ibv_wc& completion, uint64_t stamp_ns) {
    if (size() == capacity_ && !grow()) return false;
    entries()[tail_++ & (capacity_ - 1)] = {completion, stamp_ns};
    return true;
  }
  void erase_of(uint32_t qpn) {
    uint32_t kept = head_;
    for (uint32_t next = head_; next != tail_; ++next) {
      const Entry& entry = entries()[next & (capacity_ - 1)];
      if (entry.completion.qp_num != qpn) entries()[kept++ & (capacity_ - 1)] = entry;
    }
    tail_ = kept;
  }

 private:
  static constexpr uint32_t kLeast = 16;

  [[nodiscard]] Entry* entries() const { return reinterpret_cast<Entry*>(memory_.data()); }
  // Into memory of ours: the program's allocator may not be called from every thread.
  bool grow() {
    const uint32_t capacity = capacity_ == 0 ? kLeast : capacity_ * 2;
    auto memory = QueueMemory::make(nullptr, capacity * sizeof(Entry), QueueUse::kCompletionQueue);
    if (!memory) return false;
    auto* to = reinterpret_cast<Entry*>(memory->data());
    for (uint32_t next = head_; next != tail_; ++next)
      to[next & (capacity - 1)] = entries()[next & (capacity_ - 1)];
    if (memory_.programs()) given_ = std::move(memory_);
    memory_ = std::move(*memory);
    capacity_ = capacity;
    return true;
  }

  QueueMemory memory_;
  QueueMemory given_;      // outgrown, but the program's: given back when the queue is destroyed
  uint32_t capacity_ = 0;  // a power of two
  uint32_t head_ = 0;      // counts on, never taken modulo
  uint32_t tail_ = 0;
};

}  // namespace verbena::verbs
