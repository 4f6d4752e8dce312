// UniqueFd owns a file descriptor; GuardedFd also knows which file it was.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <utility>

namespace verbena::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// For descriptors inside somebody else's process: programs close what they don't know (daemons do), and the
// number may then name a file of theirs. A guarded descriptor is used and closed only while it is still ours,
// which its inode tells. So it must have one of its own: eventfds, epolls and the like share theirs and can't
// be guarded.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(UniqueFd fd) : fd_(std::move(fd)) {
    struct stat st {};
    if (fd_ && ::fstat(fd_.get(), &st) == 0) {
      device_ = st.st_dev;
      inode_ = st.st_ino;
    }
  }
  GuardedFd(GuardedFd&& other) noexcept
      : fd_(std::move(other.fd_)), device_(other.device_), inode_(other.inode_) {}
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::move(other.fd_);
    device_ = other.device_;
    inode_ = other.inode_;
    return *this;
  }
  ~GuardedFd() { reset(); }

  // The descriptor, or -1 when the program closed it or put another file in its place.
  [[nodiscard]] int get() const {
    struct stat st {};
    const bool ours = fd_ && ::fstat(fd_.get(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
    return ours ? fd_.get() : -1;
  }
  // The same for paths that are used a million times a second: looks once a tick of the kernel's clock.
  // Between two looks a program can't close it and come to the same number again, if that is high().
  [[nodiscard]] int get_often() const {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const int64_t tick = now.tv_sec * 1'000'000'000 + now.tv_nsec;
    if (looked_.load(std::memory_order_relaxed) == tick) return fd_.get();
    const int fd = get();
    if (fd >= 0) looked_.store(tick, std::memory_order_relaxed);
    return fd;
  }
  explicit operator bool() const { return get() >= 0; }
  void reset() {
    if (get() >= 0) fd_.reset();
    fd_.release();
  }

 private:
  UniqueFd fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  mutable std::atomic<int64_t> looked_ = 0;  // when get_often() last did
};

// A copy at a number that programs come to last: they open files at the lowest that is free. The same
// descriptor where there is no such number.
[[nodiscard]] inline UniqueFd high(UniqueFd fd) {
  rlimit limit{};
  if (!fd || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const rlim_t least = limit.rlim_cur / 2 < 512 ? limit.rlim_cur / 2 : 512;
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, static_cast<int>(least)));
  return copy ? std::move(copy) : std::move(fd);
}

}  // namespace verbena::base
