// epoll with callbacks, for the agent's one thread.
#pragma once

#include <functional>
#include <unordered_map>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace verbena::agent {

class EventLoop {
 public:
  using Handler = std::function<void()>;

  [[nodiscard]] static base::Result<EventLoop> create();

  // Calls `handler` while `fd` is readable, hung up or in error. The descriptor stays the caller's.
  [[nodiscard]] base::Result<void> watch(int fd, Handler handler);
  // The same while `fd` is writable.
  [[nodiscard]] base::Result<void> watch_writable(int fd, Handler handler);
  void unwatch(int fd);
  // Handles what is ready, waiting until `deadline` at most.
  void run_once(base::Instant deadline);

 private:
  explicit EventLoop(base::UniqueFd epoll) : epoll_(std::move(epoll)) {}
  [[nodiscard]] base::Result<void> add(int fd, uint32_t events, Handler handler);

  base::UniqueFd epoll_;
  std::unordered_map<int, Handler> handlers_;
};

}  // namespace verbena::agent
