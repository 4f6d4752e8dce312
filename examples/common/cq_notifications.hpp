// A completion channel in use: takes CQ events and re-arms the queue; acknowledges events many at a time, and
// all of them before the queue is destroyed, since ibv_destroy_cq waits for that.
#pragma once

#include "common/handles.hpp"
#include "common/statistics.hpp"

namespace examples {

class CqNotifications {
 public:
  /// Arms the queue for its first event.
  CqNotifications(ibv_comp_channel* channel, ibv_cq* cq, PollCounts& counts);
  ~CqNotifications();
  CqNotifications(const CqNotifications&) = delete;
  CqNotifications& operator=(const CqNotifications&) = delete;

  [[nodiscard]] int fd() const { return channel_->fd; }
  /// Takes one event, then asks for the next. Blocks as the channel does; false if that is non-blocking and
  /// empty. The queue must be polled afterwards: what came before it was armed again announces nothing.
  bool take_and_rearm();

 private:
  void acknowledge();

  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  PollCounts& counts_;
  unsigned unacknowledged_ = 0;
};

}  // namespace examples
