#include "base/lock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace verbena::base {

// Holders copy a few KiB at most: a short spin usually sees the end of it.
bool Lock::spin() {
  for (int i = 0; i < 200; ++i) {
    if (!held() && try_lock()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

void Lock::lock_contended(std::chrono::nanoseconds nap) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(nap);
  const timespec most{.tv_sec = seconds.count(), .tv_nsec = (nap - seconds).count()};
  while (!spin()) {
    asleep_.store(true, std::memory_order_relaxed);
    ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kHeld, &most, nullptr, 0);
  }
}

// All: the next unlock wakes only those who have gone to sleep again. By address only: nothing lies there any
// more, perhaps.
void Lock::wake_all(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace verbena::base
