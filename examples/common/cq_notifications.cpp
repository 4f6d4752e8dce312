#include "common/cq_notifications.hpp"

namespace examples {
namespace {

/// Acknowledging takes a lock: a hundred events at a time cost no more than one.
constexpr unsigned kBatch = 100;

}  // namespace

CqNotifications::CqNotifications(ibv_comp_channel* channel, ibv_cq* cq, PollCounts& counts)
    : channel_(channel), cq_(cq), counts_(counts) {
  check("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0));
}

CqNotifications::~CqNotifications() { acknowledge(); }

bool CqNotifications::take_and_rearm() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &queue, &context) != 0) {
    if (errno == EAGAIN) return false;
    throw Failure("ibv_get_cq_event", errno);
  }
  trace("ibv_get_cq_event: ok");
  ++counts_.cq_events;
  if (++unacknowledged_ == kBatch) acknowledge();
  check("ibv_req_notify_cq", ibv_req_notify_cq(cq_, 0));
  return true;
}

void CqNotifications::acknowledge() {
  if (unacknowledged_ == 0) return;
  ibv_ack_cq_events(cq_, unacknowledged_);
  trace("ibv_ack_cq_events: {}", unacknowledged_);
  ++counts_.ack_calls;
  unacknowledged_ = 0;
}

}  // namespace examples
