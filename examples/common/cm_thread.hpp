// A thread that does nothing but wait for CM events, so that the main loop can notice a disconnect that it
// didn't expect while it waits for completions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "common/cm_events.hpp"

namespace examples {

class CmThread : public CmEvents {
 public:
  /// Called in the thread when the connection has ended: disconnected() says so already, await() doesn't yet.
  using OnDisconnect = std::function<void(rdma_cm_id*)>;

  explicit CmThread(OnDisconnect on_disconnect = {});
  ~CmThread() override;

  CmEvent await(rdma_cm_event_type expected) override;
  /// Cheap enough for each turn of a busy loop.
  [[nodiscard]] bool disconnected() const { return disconnected_.load(std::memory_order_acquire); }
  /// What to fail with when disconnected() and there is still work to do.
  [[nodiscard]] Disconnected failure() const;

 private:
  void run();
  void publish(const CmEvent& event);
  [[nodiscard]] bool wait_for_event() const;

  OnDisconnect on_disconnect_;
  int stop_fd_;  ///< an eventfd: wakes the thread when there is nothing more to wait for
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<CmEvent> events_;  ///< under mutex_: taken by the thread, not yet by await()
  std::exception_ptr error_;    ///< under mutex_: why the thread ended before its time
  int disconnect_reason_ = 0;   ///< under mutex_: an errno
  std::atomic<bool> disconnected_ = false;
  std::thread thread_;  ///< last, so that it starts when all else is there
};

}  // namespace examples
