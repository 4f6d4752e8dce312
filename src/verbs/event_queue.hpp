// The asynchronous events of one open device, behind a descriptor that poll(2) understands.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::verbs {

struct AsyncEvent {
  int type = 0;          // an ibv_event_type
  uint64_t element = 0;  // the port number, or the address of the object it is about
};

// Producers are the helper thread and whoever finds an error; the consumer is the program in
// ibv_get_async_event.
class EventQueue {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<EventQueue>> create();

  // Readable while events wait. The program may set O_NONBLOCK on it; -1 once it closed it.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Drops the event when 1,024 wait already: a program that never reads must not grow.
  void push(AsyncEvent event);
  // Events about an object that is going away.
  void forget(uint64_t element);
  // Waits as the descriptor's flags say: EAGAIN when it is O_NONBLOCK and nothing waits, EINTR by a signal.
  [[nodiscard]] base::Result<AsyncEvent> take();

 private:
  EventQueue(base::UniqueFd fd, base::UniqueFd signal) : fd_(std::move(fd)), signal_(std::move(signal)) {}
  void signal() const;

  // A socketpair with one byte in it while events wait. Not an eventfd: those all share one inode, so a guard
  // couldn't tell ours from the program's.
  base::GuardedFd fd_;
  base::GuardedFd signal_;
  std::mutex mutex_;
  std::deque<AsyncEvent> waiting_;
};

}  // namespace verbena::verbs
