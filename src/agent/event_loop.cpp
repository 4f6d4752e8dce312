#include "agent/event_loop.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

namespace verbena::agent {

base::Result<EventLoop> EventLoop::create() {
  base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return base::fail_errno("creating an epoll");
  return EventLoop(std::move(epoll));
}

base::Result<void> EventLoop::watch(int fd, Handler handler) { return add(fd, EPOLLIN, std::move(handler)); }

base::Result<void> EventLoop::watch_writable(int fd, Handler handler) {
  return add(fd, EPOLLOUT, std::move(handler));
}

base::Result<void> EventLoop::add(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return base::fail_errno("watching a descriptor");
  handlers_[fd] = std::move(handler);
  return {};
}

void EventLoop::unwatch(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

void EventLoop::run_once(base::Instant deadline) {
  const int64_t wait_ms = std::clamp<int64_t>((deadline - base::now()).count() / 1'000'000 + 1, 0, 3'600'000);
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), static_cast<int>(wait_ms));
  for (int i = 0; i < count; ++i) {
    // An earlier handler of this round may have unwatched this one, or closed it and let its number be
    // reused: handlers read without waiting, so a call for the wrong reason does nothing.
    const auto found = handlers_.find(events[i].data.fd);
    if (found == handlers_.end()) continue;
    const Handler handler = found->second;  // a copy: it may unwatch itself
    handler();
  }
}

}  // namespace verbena::agent
