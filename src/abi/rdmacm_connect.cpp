// Connecting, accepting, rejecting, disconnecting.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "abi/rdmacm_objects.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

// What a MAD has room for, less RDMA CM's own header where there is one (IBA 12.6 and 12.11, IP CM annex
// A11).
constexpr size_t kRequestBytes = 56;
constexpr size_t kReplyBytes = 196;
constexpr size_t kRejectBytes = 148;
constexpr size_t kDatagramRequestBytes = 180;
constexpr size_t kDatagramReplyBytes = 136;

// 4.096 us * 2^16 = 268 ms: a busy host may take that long to answer; see kLocalCaAckDelay.
constexpr uint8_t kAckTimeout = 16;
constexpr uint8_t kMostRetries = 7;  // IBA: 3 bits; of RNR retries this means forever
constexpr uint16_t kRejectedByEce = 35;

base::Result<void> check_private_data(size_t length, size_t room, const void* data) {
  if (length > room)
    return base::fail(EINVAL, fmt::format("{} bytes of private data: there is room for {}", length, room));
  if (length != 0 && data == nullptr) return base::fail(EINVAL, "private data has a length but no address");
  return {};
}

base::Result<void> check_depths(const rdma_conn_param* wanted) {
  if (wanted == nullptr) return {};
  if (wanted->responder_resources != RDMA_MAX_RESP_RES && wanted->responder_resources > verbs::kMaxQpRdAtom)
    return base::fail(EINVAL, fmt::format("responder_resources {} is more than the device's {}",
                                          wanted->responder_resources, verbs::kMaxQpRdAtom));
  if (wanted->initiator_depth != RDMA_MAX_INIT_DEPTH && wanted->initiator_depth > verbs::kMaxQpInitRdAtom)
    return base::fail(EINVAL, fmt::format("initiator_depth {} is more than the device's {}",
                                          wanted->initiator_depth, verbs::kMaxQpInitRdAtom));
  return {};
}

base::Result<ipc::CmParameters> parameters_of(CmId& id, const rdma_conn_param* wanted, size_t room) {
  if (id.rdma.qp == nullptr && wanted == nullptr)
    return base::fail(EINVAL, "an id without a queue pair needs parameters that name one");
  if (auto good = check_depths(wanted); !good) return std::unexpected(good.error());
  ipc::CmParameters made;
  made.first_psn = id.first_psn;
  made.qkey = id.datagrams() ? id.qkey : 0;
  made.responder_resources = id.responder_resources;
  made.initiator_depth = id.initiator_depth;
  made.flow_control = wanted != nullptr ? wanted->flow_control : uint8_t{1};
  made.retry_count = id.retry_count;
  made.rnr_retry_count = wanted != nullptr ? std::min(wanted->rnr_retry_count, kMostRetries) : kMostRetries;
  made.mtu = id.place.mtu;
  made.ack_timeout = id.ack_timeout.value_or(kAckTimeout);
  made.traffic_class = id.traffic_class;
  made.hop_limit = 64;
  if (id.rdma.qp != nullptr) {
    made.qpn = id.rdma.qp->qp_num;
    made.srq = id.rdma.qp->srq != nullptr ? 1 : 0;
    made.qp_type = static_cast<uint8_t>(id.rdma.qp->qp_type);
  } else {
    made.qpn = wanted->qp_num;
    made.srq = wanted->srq;
    made.qp_type = static_cast<uint8_t>(id.rdma.qp_type);
  }
  const size_t before = id.passive ? 0 : id.connect_data.size();
  const size_t given = wanted != nullptr ? wanted->private_data_len : 0;
  if (auto fits = check_private_data(before + given, room,
                                     before != 0 ? id.connect_data.data()
                                     : wanted    ? wanted->private_data
                                                 : nullptr);
      !fits)
    return std::unexpected(fits.error());
  if (before != 0) std::memcpy(made.private_data, id.connect_data.data(), before);
  if (given != 0) std::memcpy(made.private_data + before, wanted->private_data, given);
  made.private_length = static_cast<uint8_t>(before + given);
  return made;
}

base::Result<void> connect(CmId& id, const rdma_conn_param* wanted) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.step != CmStep::kRouteResolved)
    return base::fail(EINVAL, id.step == CmStep::kConnecting || id.step == CmStep::kConnected
                                  ? "the RDMA CM id is connected, or being so, already"
                                  : "rdma_connect comes after rdma_resolve_route");
  const auto depth = [](const rdma_conn_param* given, uint8_t rdma_conn_param::*field, int most) {
    return static_cast<uint8_t>(given == nullptr || given->*field == 0xff ? most : given->*field);
  };
  id.responder_resources = depth(wanted, &rdma_conn_param::responder_resources, verbs::kMaxQpRdAtom);
  id.initiator_depth = depth(wanted, &rdma_conn_param::initiator_depth, verbs::kMaxQpInitRdAtom);
  id.retry_count = wanted != nullptr ? std::min(wanted->retry_count, kMostRetries) : kMostRetries;
  const auto parameters = parameters_of(id, wanted, id.datagrams() ? kDatagramRequestBytes : kRequestBytes);
  if (!parameters) return std::unexpected(parameters.error());
  id.step = CmStep::kConnecting;
  const ipc::CmConnect request{
      .id = id.number,
      .local = id.local,
      .remote = id.remote,
      .service_id = id.rdma.ps == RDMA_PS_IB ? (uint64_t{RDMA_PS_IB} << 16) + id.remote.port : 0,
      .parameters = *parameters};
  if (auto told = id.tie->connect(request); !told) {
    id.step = CmStep::kRouteResolved;
    return told;
  }
  return complete(id);
}

// What both ends can do: the peer's wish, the program's, the device's.
void agree_on_depths(CmId& id, const rdma_conn_param* wanted) {
  const auto agreed = [](uint8_t peers, uint8_t programs, int most) {
    return static_cast<uint8_t>(programs == 0xff ? std::min<int>(peers, most) : programs);
  };
  id.responder_resources = agreed(
      id.responder_resources, wanted != nullptr ? wanted->responder_resources : 0xff, verbs::kMaxQpRdAtom);
  id.initiator_depth =
      agreed(id.initiator_depth, wanted != nullptr ? wanted->initiator_depth : 0xff, verbs::kMaxQpInitRdAtom);
}

base::Result<void> accept(CmId& id, const rdma_conn_param* wanted) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.step != CmStep::kRequested)
    return base::fail(EINVAL, "rdma_accept answers a connection request: this id has none to answer");
  if (auto good = check_depths(wanted); !good) return good;
  agree_on_depths(id, wanted);
  const auto parameters = parameters_of(id, wanted, id.datagrams() ? kDatagramReplyBytes : kReplyBytes);
  if (!parameters) return std::unexpected(parameters.error());
  if (id.rdma.qp != nullptr && !id.datagrams())
    if (auto ready = connect_qp(id); !ready) return ready;
  id.step = CmStep::kAccepted;
  if (auto told = id.tie->accept({.id = id.number, .parameters = *parameters}); !told) {
    fail_qp(id);
    return told;
  }
  if (id.datagrams()) {
    drop_kept_event(id);
    return {};  // nothing comes of it
  }
  return complete(id);
}

base::Result<void> reject(CmId& id, const void* data, uint8_t length, uint16_t reason) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.step != CmStep::kRequested && id.step != CmStep::kConnecting)
    return base::fail(EINVAL, "rdma_reject answers a connection request or reply: this id has none");
  if (auto fits = check_private_data(length, id.datagrams() ? kDatagramReplyBytes : kRejectBytes, data);
      !fits)
    return fits;
  ipc::CmReject answer{.id = id.number, .reason = reason, .private_length = length};
  if (length != 0) std::memcpy(answer.private_data, data, length);
  id.step = CmStep::kOver;
  return id.tie->reject(answer);
}

base::Result<void> establish(CmId& id) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.rdma.qp != nullptr)
    return base::fail(EINVAL, "rdma_establish is for ids whose queue pair the program made itself");
  if (auto told = id.tie->establish(id.number); !told) return told;
  id.step = CmStep::kConnected;
  id.connected_once = true;
  return {};
}

base::Result<void> disconnect(CmId& id) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.datagrams() || (!id.connected_once && id.step != CmStep::kAccepted && !id.disconnect_seen))
    return base::fail(EINVAL, "the RDMA CM id isn't connected");
  fail_qp(id);
  const auto told = id.tie->disconnect(id.number);
  // The peer may have been first, and its end be over: then there is nothing left to do.
  if (!told && !id.disconnect_seen) return told;
  while (id.synchronous && !id.disconnect_seen) {
    const auto done = complete(id);
    if (!done && !id.disconnect_seen) return done;
  }
  return {};
}

base::Result<void> notify(CmId& id, ibv_event_type event) {
  if (auto ok = id.usable(); !ok) return ok;
  if (event != IBV_EVENT_COMM_EST)
    return base::fail(EINVAL, "rdma_notify takes IBV_EVENT_COMM_EST, which tells that data came early");
  return id.tie->notify(id.number);
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::connect(abi::CmId::from(id), conn_param); }));
}
VERBENA_SAME_PROTOTYPE(rdma_connect);

VERBENA_ENTRY int vb_rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::accept(abi::CmId::from(id), conn_param); }));
}
VERBENA_SAME_PROTOTYPE(rdma_accept);

VERBENA_ENTRY int vb_rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::reject(abi::CmId::from(id), data, length, 0); }));
}
VERBENA_SAME_PROTOTYPE(rdma_reject);

VERBENA_ENTRY int vb_rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) noexcept {
  return abi::minus_one(
      abi::guarded([&] { return abi::reject(abi::CmId::from(id), data, length, abi::kRejectedByEce); }));
}
VERBENA_SAME_PROTOTYPE(rdma_reject_ece);

VERBENA_ENTRY int vb_rdma_establish(rdma_cm_id* id) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::establish(abi::CmId::from(id)); }));
}
VERBENA_SAME_PROTOTYPE(rdma_establish);

VERBENA_ENTRY int vb_rdma_disconnect(rdma_cm_id* id) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::disconnect(abi::CmId::from(id)); }));
}
VERBENA_SAME_PROTOTYPE(rdma_disconnect);

VERBENA_ENTRY int vb_rdma_notify(rdma_cm_id* id, ibv_event_type event) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::notify(abi::CmId::from(id), event); }));
}
VERBENA_SAME_PROTOTYPE(rdma_notify);
