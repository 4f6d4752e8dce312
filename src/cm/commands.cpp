// What programs do with connections.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "cm/sending.hpp"

namespace verbena::cm {
namespace {

// 4.096 us * 2^17: half a second. Other stacks repeat their REP after that.
constexpr uint8_t kResponseTimeout = 17;
constexpr uint8_t kAckDelay = 15;  // what Soft-RoCE says, too: 134 ms
constexpr uint16_t kPermissiveLid = 0xffff;
constexpr uint16_t kDefaultPkey = 0xffff;

// ibv_qp_type
constexpr uint8_t kQpUc = 3;
constexpr uint8_t kQpUd = 4;
constexpr uint8_t kQpXrcSend = 9;

// Of a REQ: RC, UC, and what extended_transport says.
constexpr uint8_t kTransportUc = 1;
constexpr uint8_t kTransportExtended = 3;
constexpr uint8_t kExtendedXrc = 1;

std::unexpected<base::Error> wrong_state(uint32_t id, const char* what) {
  return base::fail(EINVAL, fmt::format("connection id {} can't {} now", id, what));
}

// So long after its end old packets of a connection may still be on the way.
base::Duration timewait_of(uint8_t ack_timeout, const Settings& settings) {
  const auto twice = base::Duration(2 * (int64_t{4'096} << std::min<unsigned>(ack_timeout, 31)));
  return std::clamp(twice, settings.shortest_timewait, settings.longest_timewait);
}

}  // namespace

base::Result<void> put_private(const uint8_t* data, size_t length, std::span<std::byte> into) {
  if (length > into.size())
    return base::fail(EINVAL, fmt::format("{} bytes of private data are given, at most {} can be sent here",
                                          length, into.size()));
  std::memcpy(into.data(), data, length);
  return {};
}

Manager::Done Manager::connect(base::Instant now, Client client, const ipc::CmConnect& command) {
  const auto found = find_id(client, command.id);
  if (!found) return std::unexpected(found.error());
  auto& [key, id] = **found;
  if (id.connection != 0 || id.listening) return wrong_state(command.id, "connect");
  const auto family = command.remote.family;
  if ((family != AF_INET && family != AF_INET6) || command.local.family != family)
    return base::fail(EAFNOSUPPORT, "both ends of a connection need addresses of one family");
  if (!environment_.is_local(command.local))
    return base::fail(EADDRNOTAVAIL, "the local address is no address of this host");
  const bool datagrams = id.space == ipc::CmPortSpace::kUdp || id.space == ipc::CmPortSpace::kIpoib ||
                         command.parameters.qp_type == kQpUd;
  if (command.parameters.private_length > (datagrams ? kSidrReqPrivateBytes : kReqPrivateBytes))
    return base::fail(EINVAL, fmt::format("{} bytes of private data are given, at most {} can be sent here",
                                          command.parameters.private_length,
                                          datagrams ? kSidrReqPrivateBytes : kReqPrivateBytes));
  if (id.taking == 0) {
    auto wanted = command.local;
    wanted.port = 0;
    const auto taken = ports_.take({.space = id.space, .address = wanted}, environment_.random());
    if (!taken) return std::unexpected(taken.error());
    id.taking = taken->taking;
    id.bound = command.local;
    id.bound.port = taken->port;
  }
  Connection& connection = add_connection(key, free_comm_id());
  connection.local = command.local;
  connection.local.port = id.bound.port;
  connection.remote = command.remote;
  connection.way = {
      .local = gid_of(command.local),
      .remote = gid_of(command.remote),
      .interface = command.local.interface != 0 ? command.local.interface : command.remote.interface,
      .traffic_class = command.parameters.traffic_class};
  if (command.parameters.hop_limit > 1) connection.way.hop_limit = command.parameters.hop_limit;
  const bool own_service = id.space == ipc::CmPortSpace::kIb && command.service_id != 0;
  connection.service_id = own_service ? command.service_id : service_id(id.space, command.remote.port);
  connection.local_qpn = command.parameters.qpn;
  connection.timewait = timewait_of(command.parameters.ack_timeout, settings_);
  if (datagrams) return ask_service(now, connection, command);
  return send_request(now, connection, command.parameters);
}

Manager::Done Manager::send_request(base::Instant now, Connection& connection,
                                    const ipc::CmParameters& parameters) {
  Req req{.local_id = connection.local_id,
          .service_id = connection.service_id,
          .ca_guid = guid_,
          .primary = {},
          .alternate = {},
          .private_data = {}};
  req.qpn = parameters.qpn;
  req.first_psn = parameters.first_psn;
  req.responder_resources = parameters.responder_resources;
  req.initiator_depth = parameters.initiator_depth;
  req.remote_response_timeout = req.local_response_timeout = kResponseTimeout;
  if (parameters.qp_type == kQpUc) req.transport = kTransportUc;
  if (parameters.qp_type == kQpXrcSend) {
    req.transport = kTransportExtended;
    req.extended_transport = kExtendedXrc;
    connection.xrc = true;
  }
  req.flow_control = parameters.flow_control != 0;
  req.retry_count = std::min<uint8_t>(parameters.retry_count, 7);
  req.rnr_retry_count = std::min<uint8_t>(parameters.rnr_retry_count, 7);
  req.srq = parameters.srq != 0;
  req.pkey = kDefaultPkey;
  req.mtu = parameters.mtu;
  req.max_cm_retries = static_cast<uint8_t>(std::min(settings_.retries, 15u));
  req.primary.local_lid = req.primary.remote_lid = kPermissiveLid;
  req.primary.local_gid = connection.way.local;
  req.primary.remote_gid = connection.way.remote;
  req.primary.flow_label = static_cast<uint32_t>(connection.transaction >> 8) & 0xfffff;
  req.primary.traffic_class = connection.way.traffic_class;
  req.primary.hop_limit = connection.way.hop_limit;
  req.primary.ack_timeout = parameters.ack_timeout;
  emit_ip_header({connection.local, connection.remote}, std::span(req.private_data).first<kIpHeaderBytes>());
  if (auto put = put_private(parameters.private_data, parameters.private_length,
                             std::span(req.private_data).subspan<kIpHeaderBytes>());
      !put) {
    forget(connection);
    return put;
  }
  connection.state = State::kReqSent;
  send_until_answered(now, connection, req);
  return {};
}

Manager::Done Manager::accept(base::Instant now, Client client, const ipc::CmAccept& command) {
  const auto found = find_connection(client, command.id);
  if (!found) return std::unexpected(found.error());
  Connection& connection = **found;
  const auto& parameters = command.parameters;
  if (connection.state == State::kSidrReceived)
    return answer_service(now, connection, sidr_status::kValid, parameters);
  if (connection.state != State::kReqReceived) return wrong_state(command.id, "accept");
  Rep rep{.local_id = connection.local_id, .remote_id = connection.remote_id, .private_data = {}};
  (connection.xrc ? rep.eecn : rep.qpn) = parameters.qpn;
  rep.first_psn = parameters.first_psn;
  rep.responder_resources = parameters.responder_resources;
  rep.initiator_depth = parameters.initiator_depth;
  rep.target_ack_delay = kAckDelay;
  rep.flow_control = parameters.flow_control != 0;
  rep.rnr_retry_count = std::min<uint8_t>(parameters.rnr_retry_count, 7);
  rep.srq = parameters.srq != 0 || connection.xrc;
  rep.ca_guid = guid_;
  if (auto put = put_private(parameters.private_data, parameters.private_length, rep.private_data); !put)
    return put;
  no_longer_waits(connection);
  connection.local_qpn = parameters.qpn;
  connection.state = State::kRepSent;
  send_until_answered(now, connection, rep);
  return {};
}

Manager::Done Manager::establish(Client client, const ipc::CmEstablish& command) {
  const auto found = find_connection(client, command.id);
  if (!found) return std::unexpected(found.error());
  Connection& connection = **found;
  if (connection.state != State::kRepReceived) return wrong_state(command.id, "be established");
  connection.state = State::kEstablished;
  send_rtu(connection);
  return {};
}

Manager::Done Manager::reject(base::Instant now, Client client, const ipc::CmReject& command) {
  const auto found = find_connection(client, command.id);
  if (!found) return std::unexpected(found.error());
  Connection& connection = **found;
  if (connection.state == State::kSidrReceived) {
    ipc::CmParameters parameters{.private_length = command.private_length};
    std::ranges::copy(command.private_data, parameters.private_data);
    return answer_service(now, connection, sidr_status::kReject, parameters);
  }
  const bool reply = connection.state == State::kRepReceived;
  if (!reply && connection.state != State::kReqReceived) return wrong_state(command.id, "reject");
  Rej rej{.about = reply ? About::kRep : About::kReq,
          .reason = command.reason != 0 ? command.reason : reject_reason::kConsumerDefined,
          .info = {},
          .private_data = {}};
  if (auto put = put_private(command.private_data, command.private_length, rej.private_data); !put)
    return put;
  send_rejection(now, connection, rej);
  return {};
}

Manager::Done Manager::disconnect(base::Instant now, Client client, const ipc::CmDisconnect& command) {
  const auto found = find_connection(client, command.id);
  if (!found) return std::unexpected(found.error());
  Connection& connection = **found;
  switch (connection.state) {
    case State::kEstablished:
      send_dreq(now, connection);
      return {};
    case State::kRepSent: {  // the other end may not know yet that it is connected
      Rej rej{
          .about = About::kOther, .reason = reject_reason::kConsumerDefined, .info = {}, .private_data = {}};
      rej.local_id = connection.local_id;
      rej.remote_id = connection.remote_id;
      send(connection, rej);
      send_dreq(now, connection);
      return {};
    }
    case State::kDreqReceived:
      send_drep(connection);
      enter_timewait(now, connection);
      return {};
    case State::kDreqSent:
    case State::kTimewait:
      return {};  // both ends may ask for it
    default:
      return wrong_state(command.id, "disconnect");
  }
}

Manager::Done Manager::notify(Client client, const ipc::CmNotify& command) {
  const auto found = find_connection(client, command.id);
  if (!found) return std::unexpected(found.error());
  Connection& connection = **found;
  if (connection.state == State::kEstablished)
    return base::fail(EISCONN, fmt::format("connection id {} is established already", command.id));
  if (connection.state != State::kRepSent) return wrong_state(command.id, "be established");
  become_established(connection);
  return {};
}

Manager::Done Manager::resume(base::Instant now, Client client, const ipc::CmResume& command) {
  if (command.space < ipc::CmPortSpace::kTcp || command.space > ipc::CmPortSpace::kIpoib)
    return base::fail(EPROTONOSUPPORT, "an unknown port space");
  const IdKey key{client, command.id};
  const bool wired = command.local_comm_id != 0;  // datagrams' ids have no connection that lasts
  if (wired && connections_.contains(command.local_comm_id))
    return base::fail(EEXIST,
                      fmt::format("there is a communication id {:#x} already", command.local_comm_id));
  if (auto added = add_id(key, {.channel = command.channel, .space = command.space}); !added) return added;
  if (!wired) return {};
  Connection& connection = add_connection(key, command.local_comm_id);
  connection.remote_id = command.remote_comm_id;
  connection.state = State::kEstablished;
  connection.way = {
      .local = gid_of(command.local), .remote = gid_of(command.remote), .interface = command.local.interface};
  connection.local = command.local;
  connection.remote = command.remote;
  connection.local_qpn = command.local_qpn;
  connection.remote_qpn = command.remote_qpn;
  by_peer_.try_emplace({connection.way.remote, connection.remote_qpn}, connection.local_id);
  if (std::ranges::find(missed_, std::pair(connection.local_id, connection.remote_id)) != missed_.end()) {
    on_disconnect_request(connection);
  } else {
    timers_.set(connection.local_id, now + settings_.coming_back);
  }
  return {};
}

}  // namespace verbena::cm
