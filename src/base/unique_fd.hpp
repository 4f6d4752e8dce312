// UniqueFd owns a file descriptor; GuardedFd also knows which file it was.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

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
  GuardedFd(GuardedFd&&) noexcept = default;
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
  explicit operator bool() const { return get() >= 0; }
  void reset() {
    if (get() >= 0) fd_.reset();
    fd_.release();
  }

 private:
  UniqueFd fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena::base
