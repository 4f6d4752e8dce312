#include "common/cm_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace examples {

CmThread::CmThread(OnDisconnect on_disconnect)
    : on_disconnect_(std::move(on_disconnect)), stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
  if (stop_fd_ < 0) throw Failure("eventfd", errno);
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "cm-events");
}

CmThread::~CmThread() {
  ::eventfd_write(stop_fd_, 1);
  thread_.join();
  ::close(stop_fd_);
}

/// False when the thread shall end. A thread inside rdma_get_cm_event could not be told so; one inside poll
/// can.
bool CmThread::wait_for_event() const {
  pollfd fds[2] = {{channel()->fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (::poll(fds, 2, -1) < 0)
    if (errno != EINTR) throw Failure("poll", errno);
  return fds[1].revents == 0;
}

void CmThread::run() try {
  while (wait_for_event())
    if (const auto event = take_cm_event(channel())) publish(*event);
} catch (...) {
  const std::lock_guard lock(mutex_);
  error_ = std::current_exception();
  arrived_.notify_all();
}

void CmThread::publish(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_TIMEWAIT_EXIT) return;  // the connection's last word; nobody asks for it
  if (event.type == RDMA_CM_EVENT_DISCONNECTED || event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    {
      const std::lock_guard lock(mutex_);
      disconnect_reason_ = reason_of(event);
    }
    disconnected_.store(true, std::memory_order_release);
    // Before await() returns, for then the id may be destroyed.
    if (on_disconnect_) on_disconnect_(event.id);
  }
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  arrived_.notify_all();
}

CmEvent CmThread::await(rdma_cm_event_type expected) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !events_.empty() || error_ != nullptr; });
  if (events_.empty()) std::rethrow_exception(error_);
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  lock.unlock();
  expect(event, expected);
  return event;
}

Disconnected CmThread::failure() const {
  const std::lock_guard lock(mutex_);
  return Disconnected(disconnect_reason_);
}

}  // namespace examples
