// What events mean to ids: the queue pair's transitions, children, parameters. On the thread that takes them.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

using ipc::CmEventKind;

// An event in the program's hands.
struct Event {
  rdma_cm_event rdma{};
  CmId* counted = nullptr;  // whose destruction waits for the acknowledgement
  std::byte private_data[ipc::kCmPrivateBytes]{};

  static Event& from(rdma_cm_event* event) { return *reinterpret_cast<Event*>(event); }
};
static_assert(offsetof(Event, rdma) == 0);

rdma_cm_event_type type_of(CmEventKind kind) {
  switch (kind) {
    case CmEventKind::kConnectRequest:
      return RDMA_CM_EVENT_CONNECT_REQUEST;
    case CmEventKind::kConnectResponse:
      return RDMA_CM_EVENT_CONNECT_RESPONSE;
    case CmEventKind::kConnectError:
      return RDMA_CM_EVENT_CONNECT_ERROR;
    case CmEventKind::kUnreachable:
      return RDMA_CM_EVENT_UNREACHABLE;
    case CmEventKind::kRejected:
      return RDMA_CM_EVENT_REJECTED;
    case CmEventKind::kEstablished:
      return RDMA_CM_EVENT_ESTABLISHED;
    case CmEventKind::kDisconnected:
      return RDMA_CM_EVENT_DISCONNECTED;
    case CmEventKind::kTimewaitExit:
      return RDMA_CM_EVENT_TIMEWAIT_EXIT;
    case CmEventKind::kAddressResolved:
      return RDMA_CM_EVENT_ADDR_RESOLVED;
    case CmEventKind::kAddressError:
      return RDMA_CM_EVENT_ADDR_ERROR;
    case CmEventKind::kRouteResolved:
      return RDMA_CM_EVENT_ROUTE_RESOLVED;
    case CmEventKind::kRouteError:
      return RDMA_CM_EVENT_ROUTE_ERROR;
    case CmEventKind::kMulticastJoined:
      return RDMA_CM_EVENT_MULTICAST_JOIN;
    case CmEventKind::kMulticastError:
      return RDMA_CM_EVENT_MULTICAST_ERROR;
    case CmEventKind::kAddressChanged:
      return RDMA_CM_EVENT_ADDR_CHANGE;
    case CmEventKind::kDeviceRemoved:
      return RDMA_CM_EVENT_DEVICE_REMOVAL;
  }
  return RDMA_CM_EVENT_CONNECT_ERROR;
}

// What the peer told, the depths as they are for us: its initiator depth is our responder's.
void tell_parameters(Event& event, const CmId& id, const ipc::CmParameters& told) {
  const auto length = std::min<uint32_t>(told.private_length, ipc::kCmPrivateBytes);
  std::memcpy(event.private_data, told.private_data, length);
  const void* data = length != 0 ? event.private_data : nullptr;
  if (id.datagrams()) {
    rdma_ud_param& ud = event.rdma.param.ud;
    ud.private_data = data;
    ud.private_data_len = static_cast<uint8_t>(length);
    ud.qp_num = told.qpn;
    ud.qkey = told.qkey;
    ud.ah_attr = route_to_peer(id);
    return;
  }
  event.rdma.param.conn = {.private_data = data,
                           .private_data_len = static_cast<uint8_t>(length),
                           .responder_resources = told.responder_resources,
                           .initiator_depth = told.initiator_depth,
                           .flow_control = told.flow_control,
                           .retry_count = told.retry_count,
                           .rnr_retry_count = told.rnr_retry_count,
                           .srq = told.srq,
                           .qp_num = told.qpn};
}

constexpr int kRejectedByTimeout = 4;  // IBA 12.6.7.2

// An XRC initiator and an XRC target need each other; so do the others.
base::Result<void> check_type(const CmId& listener, const ipc::CmEvent& request) {
  const bool wants_target = request.parameters.qp_type == IBV_QPT_XRC_RECV;
  if (wants_target == (listener.rdma.qp_type == IBV_QPT_XRC_RECV)) return {};
  return base::fail(EPROTOTYPE, fmt::format("{} asked for {} connection, which this RDMA CM id doesn't take",
                                            client::to_text(request.remote),
                                            wants_target ? "an XRC" : "another than an XRC"));
}

// The id of a connection that was asked for. nullptr: it could not be made, and the peer was told so.
CmId* make_child(client::CmTie& tie, CmId& listener, const ipc::CmEvent& request) {
  auto child = std::make_unique<CmId>();
  child->tie = listener.tie;
  child->number = request.child;
  child->passive = true;
  child->step = CmStep::kRequested;
  child->peer = request.parameters;
  child->responder_resources = request.parameters.responder_resources;
  child->initiator_depth = request.parameters.initiator_depth;
  child->traffic_class = request.parameters.traffic_class;
  child->ack_timeout = listener.ack_timeout;
  child->rdma.channel = listener.rdma.channel;
  child->rdma.context = listener.rdma.context;
  child->rdma.ps = listener.rdma.ps;
  child->rdma.qp_type = listener.rdma.qp_type;
  if (!tie.adopt(request, child.get())) return nullptr;
  auto made = check_type(listener, request);
  if (made) made = take_addresses(*child, request);
  // Either way the agent hears that it was handed out: from now on it may outlive its listener.
  if (made)
    made = listener.synchronous
               ? migrate(*child, nullptr)
               : tie.migrate(child->number, EventChannel::from(listener.rdma.channel).channel);
  if (!made && made.error().code == EINVAL && !listener.synchronous) {
    // The agent that named it is gone. Programs that saw their descriptor readable count on an event: they
    // get the request, and the peer's end of it.
    child->leave(CmEventKind::kRejected, kRejectedByTimeout);
    made = {};
  }
  if (!made) {
    base::explain(made.error());
    (void)tie.reject({.id = request.child});
    tie.destroy(request.child);
    return nullptr;
  }
  return child.release();
}

// False: the program is told nothing.
bool on_connect_request(client::CmTie& tie, Event& event, CmId& listener, const ipc::CmEvent& heard) {
  CmId* child = make_child(tie, listener, heard);
  if (child == nullptr) return false;
  event.rdma.id = &child->rdma;
  event.rdma.listen_id = &listener.rdma;
  tell_parameters(event, *child, heard.parameters);
  if (!listener.synchronous) return true;
  // The child keeps it, perhaps for longer than the listener lives.
  (void)tie.find(child->number, [](void* owner) { ++static_cast<CmId*>(owner)->events_handed_out; });
  event.counted = child;
  const std::lock_guard lock(listener.mutex);
  ++listener.events_acknowledged;
  listener.acknowledged.notify_all();
  return true;
}

// False: the program is told nothing.
bool on_connect_response(client::CmTie& tie, Event& event, CmId& id, const ipc::CmEvent& heard) {
  id.peer = heard.parameters;
  tell_parameters(event, id, heard.parameters);
  if (id.rdma.qp == nullptr) return true;  // the program does it, and calls rdma_establish
  auto ready = connect_qp(id);
  if (ready) {
    ready = tie.establish(id.number);
    // The peer has ended it meanwhile, or is dead: the event that says so waits behind this one.
    if (!ready && ready.error().code == EINVAL) return false;
  } else {
    (void)tie.reject({.id = id.number});
  }
  if (ready) {
    event.rdma.event = RDMA_CM_EVENT_ESTABLISHED;
    id.step = CmStep::kConnected;
    id.connected_once = true;
    return true;
  }
  base::explain(ready.error());
  fail_qp(id);
  event.rdma.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event.rdma.status = -ready.error().code;
  id.step = CmStep::kOver;
  return true;
}

void on_ended(CmId& id) {
  id.step = CmStep::kOver;
  id.disconnect_seen = true;
}

// False: the program is told nothing.
bool fill(client::CmTie& tie, Event& event, CmId& id, const ipc::CmEvent& heard) {
  switch (heard.event) {
    case CmEventKind::kConnectRequest:
      return on_connect_request(tie, event, id, heard);
    case CmEventKind::kConnectResponse:
      return on_connect_response(tie, event, id, heard);
    case CmEventKind::kEstablished:
      if (!id.passive) {
        id.peer = heard.parameters;
        tell_parameters(event, id, heard.parameters);
      }
      id.step = CmStep::kConnected;
      id.connected_once = true;
      return true;
    case CmEventKind::kRejected:
      tell_parameters(event, id, heard.parameters);
      fail_qp(id);
      on_ended(id);
      return true;
    case CmEventKind::kConnectError:
    case CmEventKind::kUnreachable:
      fail_qp(id);
      on_ended(id);
      return true;
    case CmEventKind::kDisconnected:
      on_ended(id);  // and the queue pair stays as it is: flushing it is rdma_disconnect's
      return true;
    case CmEventKind::kMulticastJoined:
      if (auto joined = joined_group(id, heard.context, event.rdma); !joined) {
        event.rdma.event = RDMA_CM_EVENT_MULTICAST_ERROR;
        event.rdma.status = -explained(joined.error());
      }
      return true;
    default:
      return true;
  }
}

}  // namespace

rdma_cm_event* translate(client::CmTie& tie, const ipc::CmEvent& heard) {
  auto event = std::make_unique<Event>();
  void* owner = tie.find(heard.id, [](void* found) { ++static_cast<CmId*>(found)->events_handed_out; });
  if (owner == nullptr) return nullptr;  // destroyed meanwhile
  CmId& id = *static_cast<CmId*>(owner);
  tie.note(heard);
  event->counted = &id;
  event->rdma.id = &id.rdma;
  event->rdma.event = type_of(heard.event);
  event->rdma.status = heard.status;
  const bool told = fill(tie, *event, id, heard);
  rdma_cm_event* made = &event.release()->rdma;
  if (told) return made;
  (void)acknowledge(made);
  return nullptr;
}

base::Result<void> acknowledge(rdma_cm_event* event) {
  if (event == nullptr) return base::fail(EINVAL, "there is no event to acknowledge");
  CmId& id = *Event::from(event).counted;
  {
    // Told under the lock: who waits frees the id right after.
    const std::lock_guard lock(id.mutex);
    ++id.events_acknowledged;
    id.acknowledged.notify_all();
  }
  delete &Event::from(event);
  return {};
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_ack_cm_event(rdma_cm_event* event) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::acknowledge(event); }));
}
VERBENA_SAME_PROTOTYPE(rdma_ack_cm_event);
