#include "verbs/event_queue.hpp"

#include <sys/socket.h>

#include <tuple>
#include <utility>

namespace verbena::verbs {
namespace {

constexpr size_t kMaxWaiting = 1024;

}  // namespace

base::Result<std::unique_ptr<EventQueue>> EventQueue::create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return base::fail_errno("the asynchronous event queue needs a socketpair");
  return std::unique_ptr<EventQueue>(new EventQueue(base::UniqueFd(ends[0]), base::UniqueFd(ends[1])));
}

void EventQueue::signal() const {
  const char token = 0;
  // Without the descriptor (the program closed it) events stay queued, and nobody can be woken for them.
  if (const int fd = signal_.get(); fd >= 0)
    std::ignore = ::send(fd, &token, sizeof token, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void EventQueue::push(AsyncEvent event) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) return;
  waiting_.push_back(event);
  if (waiting_.size() == 1) signal();
}

void EventQueue::forget(uint64_t element) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return;
  std::erase_if(waiting_, [&](const AsyncEvent& event) { return event.element == element && element > 255; });
  char token = 0;
  if (const int fd = fd_.get(); waiting_.empty() && fd >= 0)
    std::ignore = ::recv(fd, &token, sizeof token, MSG_DONTWAIT);
}

base::Result<AsyncEvent> EventQueue::take() {
  const int fd = fd_.get();
  if (fd < 0) return base::fail(EBADF, "the program closed the descriptor of its asynchronous events");
  char token = 0;
  // No lock over the read: it may wait for as long as the program likes.
  const ssize_t got = ::read(fd, &token, sizeof token);
  if (got < 0) return base::fail_errno("reading asynchronous events");

  const std::lock_guard lock(mutex_);
  if (got == 0) return base::fail(EIO, "the descriptor of asynchronous events isn't ours any more");
  // What it was about was destroyed between the read and here.
  if (waiting_.empty()) return base::fail(EAGAIN, "no asynchronous event waits");
  const AsyncEvent event = waiting_.front();
  waiting_.pop_front();
  if (!waiting_.empty()) signal();
  return event;
}

}  // namespace verbena::verbs
