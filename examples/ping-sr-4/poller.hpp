// Both kinds of news in one poll(2), as a program does it that waits for sockets: the event channel and the
// completion channel are non-blocking, and one thread looks after both.
#pragma once

#include <deque>
#include <optional>

#include "common/cm_events.hpp"
#include "common/cq_notifications.hpp"
#include "common/queues.hpp"
#include "common/work.hpp"

namespace examples {

class Poller : public CmEvents {
 public:
  Poller();

  CmEvent await(rdma_cm_event_type expected) override;

 private:
  friend class PolledCompletions;
  /// Sleeps until there is something on the event channel or on `fd`, if that isn't negative. Takes the CM
  /// events. Whether `fd` is ready.
  bool wait(int fd);
  void take_cm_events();

  std::deque<CmEvent> events_;       ///< taken, not yet awaited
  std::optional<int> disconnected_;  ///< the errno, once the connection has ended
};

/// Completions of one completion queue, which also notice what the poller learns about the connection.
class PolledCompletions {
 public:
  PolledCompletions(Poller& poller, const Queues& queues, PollCounts& counts);

  /// The next completion; throws if the peer has gone.
  [[nodiscard]] ibv_wc next();

 private:
  Poller& poller_;
  ibv_cq* cq_;
  PollCounts& counts_;
  CqNotifications notifications_;
};

}  // namespace examples
