// Completions without busy polling: poll; if there is none, sleep until the completion channel announces one;
// arm it again; poll again.
#pragma once

#include "common/cm_thread.hpp"
#include "common/cq_notifications.hpp"
#include "common/queues.hpp"
#include "common/work.hpp"

namespace examples {

class NotifiedCompletions {
 public:
  NotifiedCompletions(const Queues& queues, const CmThread& events, PollCounts& counts)
      : cq_(queues.cq.get()),
        events_(events),
        counts_(counts),
        notifications_(queues.channel.get(), cq_, counts) {}

  /// The next completion; throws if the peer has gone.
  [[nodiscard]] ibv_wc next();

 private:
  [[nodiscard]] bool find(ibv_wc& completion);

  ibv_cq* cq_;
  const CmThread& events_;
  PollCounts& counts_;
  CqNotifications notifications_;
};

/// What the CM thread does when the peer has gone. That alone wakes nobody who sleeps on the completion
/// channel: a disconnect leaves the queue pair as it is. rdma_disconnect moves it to the error state, all
/// that is posted completes as flushed, and these completions ring the channel.
void wake_by_flushing(rdma_cm_id* id);

}  // namespace examples
