// A lock for the hot path: one compare-and-swap when nobody contends, the kernel when somebody does.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::base {

// Lockable by std::lock_guard. Private to the process; never held over a wait for another process.
class Lock {
 public:
  void lock() {
    uint32_t free = kFree;
    if (!word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed))
      lock_contended();
  }
  bool try_lock() {
    uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // At this moment, by whomever.
  [[nodiscard]] bool held() const { return word_.load(std::memory_order_relaxed) != kFree; }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kContended) word_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;  // held, and somebody may sleep

  void lock_contended() {
    // Holders copy a few KiB at most: a short spin usually sees the end of it.
    for (int i = 0; i < 200; ++i) {
      if (word_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree)
      word_.wait(kContended, std::memory_order_relaxed);
  }

  std::atomic<uint32_t> word_ = kFree;
};

}  // namespace verbena::base
