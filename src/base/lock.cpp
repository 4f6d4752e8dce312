#include "base/lock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace verbena::base {
namespace {

constexpr long kNapNs = 1'000'000;

}  // namespace

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

void Lock::lock_contended() {
  if (spin()) return;
  sleepers_.fetch_add(1, std::memory_order_relaxed);
  while (!spin()) {
    const timespec nap{.tv_sec = 0, .tv_nsec = kNapNs};
    ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kHeld, &nap, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// By address only: nothing lies there any more, perhaps.
void Lock::wake_one(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace verbena::base
