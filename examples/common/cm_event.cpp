#include "common/cm_event.hpp"

#include <cerrno>
#include <cstring>

namespace examples {
namespace {

CmEvent copy_of(const rdma_cm_event& event) {
  CmEvent copy = {event.event, event.status, event.id, {}, {}};
  if (event.id->ps == RDMA_PS_UDP) {
    copy.ud = event.param.ud;
  } else if (event.param.conn.private_data != nullptr) {
    const auto* begin = static_cast<const std::byte*>(event.param.conn.private_data);
    copy.private_data.assign(begin, begin + event.param.conn.private_data_len);
  }
  return copy;
}

}  // namespace

std::optional<CmEvent> take_cm_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno == EAGAIN) return std::nullopt;
    throw Failure("rdma_get_cm_event", errno);
  }
  trace("rdma_get_cm_event: {}, status {}", rdma_event_str(event->event), event->status);
  CmEvent copy = copy_of(*event);
  // Each event is acknowledged: rdma_destroy_id waits until all of its id's are.
  check("rdma_ack_cm_event", rdma_ack_cm_event(event));
  return copy;
}

void expect(const CmEvent& event, rdma_cm_event_type expected) {
  if (event.type == expected && event.status == 0) return;
  if (event.type == RDMA_CM_EVENT_REJECTED) {
    const std::string text = rejection_text(event.private_data.data(), event.private_data.size());
    throw Failure(fmt::format("rdma_connect: the server rejects us (reason {}){}{}", event.status,
                              text.empty() ? "" : ": ", text));
  }
  throw Failure(fmt::format("awaited {}, got {} with status {}", rdma_event_str(expected),
                            rdma_event_str(event.type), event.status));
}

int reason_of(const CmEvent& disconnected) {
  return disconnected.status < 0 ? -disconnected.status : ECONNRESET;
}

std::string rejection_text(const void* private_data, std::size_t length) {
  if (private_data == nullptr) return "";
  const auto* text = static_cast<const char*>(private_data);
  return std::string(text, ::strnlen(text, length));
}

}  // namespace examples
