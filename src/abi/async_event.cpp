// Asynchronous events: taken from the device's queue, acknowledged at the object they are about.
#include <fcntl.h>
#include <poll.h>

#include "abi/abi.hpp"
#include "abi/objects.hpp"

namespace verbena::abi {
namespace {

enum class About { kCq, kQp, kSrq, kWq, kPort };

About about(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return About::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return About::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return About::kSrq;
    case IBV_EVENT_WQ_FATAL:
      return About::kWq;
    default:
      return About::kPort;  // or the device: neither is ever destroyed
  }
}

template <typename Object>
void count(Object& object) {
  pthread_mutex_lock(&object.ibv.mutex);
  ++object.async_events_handed_out;
  pthread_mutex_unlock(&object.ibv.mutex);
}

void hand_out(ibv_async_event& event, void* object) {
  event.element.cq = static_cast<ibv_cq*>(object);  // the union's pointers share their bytes
  if (about(event.event_type) == About::kCq) count(Cq::from(event.element.cq));
  if (about(event.event_type) == About::kQp) count(Qp::from(event.element.qp));
  if (about(event.event_type) == About::kSrq) count(Srq::from(event.element.srq));
}

base::Result<void> get_event(ibv_context* context, ibv_async_event* event) {
  const Context& ours = Context::from(context);
  if (auto ok = ours.usable(); !ok) return ok;
  const auto taken = ours.open->events().take();
  if (!taken) return std::unexpected(taken.error());
  *event = {};
  event->event_type = static_cast<ibv_event_type>(taken->type);
  if (about(event->event_type) == About::kPort)
    event->element.port_num = static_cast<int>(taken->element);
  else
    hand_out(*event, reinterpret_cast<void*>(taken->element));
  return {};
}

// The descriptor to wait on before taking an event; -1: the program wants no wait, or there is nothing to
// wait for.
int blocking_descriptor(ibv_context* context) noexcept {
  const Context& ours = Context::from(context);
  if (!guarded([&] { return ours.usable(); })) return -1;
  const int fd = ours.open->events().fd();
  const int flags = fd >= 0 ? ::fcntl(fd, F_GETFL) : -1;
  return flags >= 0 && (flags & O_NONBLOCK) == 0 ? fd : -1;
}

// Destroying an object waits until as many of its events were acknowledged as were handed out.
template <typename Object>
void acknowledge(Object& object, uint32_t Object::*completed) {
  pthread_mutex_lock(&object.mutex);
  ++(object.*completed);
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

// Not noexcept: programs end their event threads by pthread_cancel(), which unwinds from the poll.
VERBENA_ENTRY int vb_ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const int fd = abi::blocking_descriptor(context);
  pollfd ready{fd, POLLIN, 0};
  if (fd >= 0 && ::poll(&ready, 1, -1) < 0) return -1;  // EINTR, as read(2) has it
  return abi::minus_one(abi::guarded([&] { return abi::get_event(context, event); }));
}
VERBENA_SAME_PROTOTYPE(ibv_get_async_event);

VERBENA_ENTRY void vb_ibv_ack_async_event(ibv_async_event* event) noexcept {
  switch (abi::about(event->event_type)) {
    case abi::About::kCq:
      return abi::acknowledge(*event->element.cq, &ibv_cq::async_events_completed);
    case abi::About::kQp:
      return abi::acknowledge(*event->element.qp, &ibv_qp::events_completed);
    case abi::About::kSrq:
      return abi::acknowledge(*event->element.srq, &ibv_srq::events_completed);
    case abi::About::kWq:
      return abi::acknowledge(*event->element.wq, &ibv_wq::events_completed);
    case abi::About::kPort:
      return;
  }
}
VERBENA_SAME_PROTOTYPE(ibv_ack_async_event);
