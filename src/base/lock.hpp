// A lock for the hot path: one atomic instruction when nobody contends, the kernel when somebody does.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::base {

// Lockable by std::lock_guard. Private to the process; never held over a wait for another process.
class Lock {
 public:
  void lock() {
    if (!try_lock()) lock_contended();
  }
  bool try_lock() {
    uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // At this moment, by whomever.
  [[nodiscard]] bool held() const { return word_.load(std::memory_order_relaxed) != kFree; }
  // A plain store. Who goes to sleep between our look and it isn't woken, and sleeps for a nap, 1 ms. After
  // it the lock may be gone, so it is looked at no more.
  void unlock() {
    const bool wake = sleepers_.load(std::memory_order_relaxed) != 0;
    word_.store(kFree, std::memory_order_release);
    if (wake) [[unlikely]]
      wake_one(word_);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;

  void lock_contended();
  [[nodiscard]] bool spin();
  static void wake_one(const std::atomic<uint32_t>& word);

  std::atomic<uint32_t> word_ = kFree;
  std::atomic<uint32_t> sleepers_ = 0;
};

}  // namespace verbena::base
