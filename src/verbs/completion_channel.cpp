#include "verbs/completion_channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>

#include "base/random.hpp"

namespace verbena::verbs {

base::Result<std::unique_ptr<CompletionChannel>> CompletionChannel::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::fail_errno("a completion channel needs a pipe");
  base::UniqueFd reading(ends[0]);
  base::UniqueFd writing(ends[1]);
  // Opened anew for both directions: a pipe whose only reader, the program's descriptor, was closed would
  // raise SIGPIPE in the program when somebody rings.
  if (base::UniqueFd both(::open(fmt::format("/proc/self/fd/{}", writing.get()).c_str(), O_RDWR | O_CLOEXEC));
      both)
    writing = std::move(both);
  struct stat status {};
  // Ringing must never wait, however many events a program leaves unread.
  if (::fcntl(writing.get(), F_SETFL, O_NONBLOCK) != 0 || ::fstat(writing.get(), &status) != 0)
    return base::fail_errno("setting a completion channel up");
  return std::unique_ptr<CompletionChannel>(
      new CompletionChannel(std::move(reading), std::move(writing), status.st_ino));
}

uint32_t CompletionChannel::join(void* queue) {
  const std::lock_guard lock(mutex_);
  if (last_token_ == 0) last_token_ = static_cast<uint32_t>(base::random_u64());
  while (++last_token_ == 0 || queues_.contains(last_token_)) {
  }
  queues_[last_token_] = queue;
  return last_token_;
}

void CompletionChannel::leave(uint32_t token) {
  const std::lock_guard lock(mutex_);
  queues_.erase(token);
}

void CompletionChannel::ring(int fd, uint32_t token) {
  if (fd >= 0) std::ignore = ::write(fd, &token, sizeof token);
}

base::Result<uint32_t> CompletionChannel::read_token() const {
  const int fd = reading_.get();
  if (fd < 0) return base::fail(EBADF, "the program closed the descriptor of its completion channel");
  uint32_t token = 0;
  const ssize_t got = ::read(fd, &token, sizeof token);
  if (got < 0) return base::fail_errno("waiting for a completion event");
  if (got != sizeof token) return base::fail(EIO, "the completion channel's descriptor isn't ours any more");
  return token;
}

}  // namespace verbena::verbs
