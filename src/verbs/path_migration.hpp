// Automatic path migration of one connection (IBA 17.2.8): whether its other path may be used, and when it
// is. The path that carries the connection keeps it; the queue pair looks at it when the program asks.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/lock.hpp"

namespace verbena::verbs {

// Any thread, under any lock but that of the device's events.
class PathMigration {
 public:
  using Tell = std::function<void(ibv_event_type)>;
  // Before anything else.
  void set_listener(Tell tell) { tell_ = std::move(tell); }

  [[nodiscard]] ibv_mig_state state() const { return state_.load(std::memory_order_acquire); }
  // How often this connection has changed its path.
  [[nodiscard]] uint32_t times() const { return times_.load(std::memory_order_acquire); }
  // What packets say (BTH's MigReq): with it the peer knows that we are on the path we mean to be on.
  [[nodiscard]] bool says_migrated() const { return state() == IBV_MIG_MIGRATED; }

  // The program loaded another path, and wants it ready for use.
  void rearm() { state_.store(IBV_MIG_REARM, std::memory_order_release); }
  // The program wants none.
  void disarm() { state_.store(IBV_MIG_MIGRATED, std::memory_order_release); }
  // The peer has one as well. True: it is news.
  bool arm() {
    ibv_mig_state expected = IBV_MIG_REARM;
    return state_.compare_exchange_strong(expected, IBV_MIG_ARMED);
  }
  // Has the connection use its other path from now on, by `change`; both paths stay where they are until the
  // program loads another. False: it isn't armed.
  template <typename Change>
  bool migrate(Change change) {
    {
      const std::lock_guard lock(lock_);
      if (state() != IBV_MIG_ARMED) return false;
      change();
      times_.fetch_add(1, std::memory_order_release);
      state_.store(IBV_MIG_MIGRATED, std::memory_order_release);
    }
    tell(IBV_EVENT_PATH_MIG);
    return true;
  }
  // The peer uses a path that isn't the one we were armed with.
  void refuse() {
    if (state() == IBV_MIG_ARMED) tell(IBV_EVENT_PATH_MIG_ERR);
  }

 private:
  void tell(ibv_event_type type) const {
    if (tell_) tell_(type);
  }

  base::Lock lock_;
  std::atomic<ibv_mig_state> state_ = IBV_MIG_MIGRATED;
  std::atomic<uint32_t> times_ = 0;
  Tell tell_;
};

}  // namespace verbena::verbs
