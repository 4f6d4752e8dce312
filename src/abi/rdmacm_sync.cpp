// Synchronous ids: those without a channel of the program's. Their calls wait for what comes of them.
#include <fmt/format.h>
#include <sys/socket.h>

#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

base::Result<rdma_cm_event*> wait_for_event(EventChannel& channel) {
  for (;;) {
    auto event = take_event(channel);
    if (event || event.error().code != EAGAIN) return event;
    char first = 0;
    if (::recv(channel.rdma.fd, &first, sizeof first, MSG_PEEK) < 0)
      return base::fail_errno("waiting for an RDMA CM event");
  }
}

base::Error failure_of(const CmId& id, const rdma_cm_event& event) {
  const std::string peer = client::to_text(id.remote);
  if (event.event == RDMA_CM_EVENT_REJECTED)
    return {ECONNREFUSED, fmt::format("{} rejected the connection (reason {})", peer, event.status)};
  return {event.status < 0 ? -event.status : event.status,
          fmt::format("RDMA CM, towards {}: event {} with status {}", peer, static_cast<int>(event.event),
                      event.status)};
}

base::Result<rdma_cm_id*> get_request(CmId& listener) {
  if (auto ok = listener.usable(); !ok) return std::unexpected(ok.error());
  if (!listener.synchronous)
    return base::fail(EINVAL, "rdma_get_request is for ids that have no event channel of the program's");
  drop_kept_event(listener);
  const auto event = wait_for_event(EventChannel::from(listener.rdma.channel));
  if (!event) return std::unexpected(event.error());
  if ((*event)->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    base::Error failed = failure_of(listener, **event);
    (void)acknowledge(*event);
    if (failed.code == 0) failed.code = EINVAL;
    return std::unexpected(failed);
  }
  CmId& child = CmId::from((*event)->id);
  base::Result<void> made;
  if (listener.child_attributes) {
    ibv_qp_init_attr attributes = *listener.child_attributes;
    made = create_qp(child, listener.child_pd, &attributes);
  }
  if (!made) {
    (void)acknowledge(*event);
    (void)destroy_id(child);
    return std::unexpected(made.error());
  }
  child.rdma.event = *event;  // kept: its private data is the child's to read
  return &child.rdma;
}

}  // namespace

void drop_kept_event(CmId& id) {
  if (id.rdma.event == nullptr) return;
  (void)acknowledge(id.rdma.event);
  id.rdma.event = nullptr;
}

base::Result<void> complete(CmId& id) {
  if (!id.synchronous) return {};
  drop_kept_event(id);
  const auto event = wait_for_event(EventChannel::from(id.rdma.channel));
  if (!event) return std::unexpected(event.error());
  id.rdma.event = *event;
  if ((*event)->status != 0) return std::unexpected(failure_of(id, **event));
  return {};
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) noexcept {
  const auto child = abi::guarded([&] { return abi::get_request(abi::CmId::from(listen)); });
  if (child) *id = *child;
  return abi::minus_one(child);
}
VERBENA_SAME_PROTOTYPE(rdma_get_request);
