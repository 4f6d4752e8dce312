// A lock for the hot path: one atomic instruction when nobody contends, the kernel when somebody does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace verbena::base {

// Of this process only. Not fair; a holder should do little. A BasicLockable.
class Lock {
 public:
  void lock() {
    if (!try_lock()) lock_contended(kNap);
  }
  bool try_lock() {
    uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // At this moment, by whomever.
  [[nodiscard]] bool held() const { return word_.load(std::memory_order_relaxed) != kFree; }
  // A plain store, so no fence: what is looked at afterwards may be read before others see what was written.
  // Who goes to sleep between our look and it isn't woken, and sleeps for a nap. After it the lock may be
  // gone, so it is looked at no more.
  void unlock() {
    const bool wake = asleep_.load(std::memory_order_relaxed);
    if (wake) [[unlikely]]
      asleep_.store(false, std::memory_order_relaxed);
    word_.store(kFree, std::memory_order_release);
    if (wake) [[unlikely]]
      wake_all(word_);
  }

 protected:
  void lock_contended(std::chrono::nanoseconds nap);

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr std::chrono::milliseconds kNap{1};

  [[nodiscard]] bool spin();
  static void wake_all(const std::atomic<uint32_t>& word);

  std::atomic<uint32_t> word_ = kFree;
  std::atomic<bool> asleep_ = false;  // somebody, since the last wake
};

}  // namespace verbena::base
