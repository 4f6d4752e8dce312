// REQs: is it a repeated one, from a peer that forgot an earlier connection, for somebody who listens?
#include <fmt/format.h>

#include "cm/sending.hpp"

namespace verbena::cm {
namespace {

constexpr uint8_t kServiceTimeout = 24;  // 69 s, as the kernel says; asked again one says it again

constexpr uint8_t kTransportExtended = 3;  // of a REQ; XRC is the only one

// ibv_qp_type, of the queue pair that would answer
uint8_t answering_qp_type(const Req& req) {
  constexpr uint8_t kRc = 2;
  constexpr uint8_t kUc = 3;
  constexpr uint8_t kXrcRecv = 10;
  if (req.transport == kTransportExtended) return kXrcRecv;
  return req.transport == 1 ? kUc : kRc;
}

}  // namespace

ipc::CmParameters parameters_of(const Req& req) {
  // What one end has as responder the other may use as initiator.
  ipc::CmParameters parameters{.qpn = req.qpn,
                               .first_psn = req.first_psn,
                               .qkey = req.qkey,
                               .responder_resources = req.initiator_depth,
                               .initiator_depth = req.responder_resources,
                               .flow_control = req.flow_control,
                               .retry_count = req.retry_count,
                               .rnr_retry_count = req.rnr_retry_count,
                               .srq = req.srq,
                               .mtu = req.mtu,
                               .ack_timeout = req.primary.ack_timeout,
                               .qp_type = answering_qp_type(req),
                               .traffic_class = req.primary.traffic_class,
                               .hop_limit = req.primary.hop_limit};
  set_private(parameters, std::span(req.private_data).subspan<kIpHeaderBytes>());
  return parameters;
}

void Manager::on(base::Instant now, const Way& way, uint64_t transaction, const Req& req) {
  const RequestKey request{.guid = req.ca_guid, .number = req.local_id};
  if (const auto found = requests_.find(request); found != requests_.end())
    return on_repeated_request(now, connections_.at(found->second));

  const auto turn_away = [&](uint16_t reason) {
    Connection nobody{.remote_id = req.local_id, .way = way, .transaction = transaction};
    send(nobody, Rej{.remote_id = req.local_id,
                     .about = About::kReq,
                     .reason = reason,
                     .info = {},
                     .private_data = {}});
  };
  if (stale(now, way, req)) return turn_away(reject_reason::kStaleConnection);
  const auto header = parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>());
  const auto listener = header ? listener_of(way, req.service_id, *header) : IdKey{};
  if (!listener) return turn_away(reject_reason::kInvalidServiceId);
  Connection* const connection = admit(listener, way, transaction, *header);
  if (connection == nullptr) return turn_away(reject_reason::kConsumerDefined);
  connection->state = State::kReqReceived;
  connection->remote_id = req.local_id;
  connection->service_id = req.service_id;
  connection->local.port = static_cast<uint16_t>(req.service_id);
  connection->peer_guid = req.ca_guid;
  connection->remote_qpn = req.qpn;
  connection->xrc = req.transport == kTransportExtended;
  connection->request = request;
  requests_[request] = connection->local_id;
  by_peer_[{way.remote, req.qpn}] = connection->local_id;
  announce(*connection, listener, parameters_of(req));
  send_mra(*connection, About::kReq, kServiceTimeout);
}

void Manager::on_repeated_request(base::Instant now, Connection& connection) {
  switch (connection.state) {
    case State::kReqReceived:
      return send_mra(connection, About::kReq, kServiceTimeout);
    case State::kRepSent:
      return repeat(now, connection);
    case State::kRejected:
      return send(connection, connection.rejection);
    default:
      return;  // the duplicate was long on its way
  }
}

// A queue pair connects once: if one that we think connected asks anew, its end of that connection is gone.
bool Manager::stale(base::Instant now, const Way& way, const Req& req) {
  const auto found = req.qpn == 0 ? by_peer_.end() : by_peer_.find({way.remote, req.qpn});
  if (found == by_peer_.end()) return false;
  Connection& old = connections_.at(found->second);
  if (old.state == State::kReqReceived) {  // it gave up, which we haven't heard
    refuse(now, old, reject_reason::kTimeout);
    return false;
  }
  if (old.state == State::kRepSent) {
    refuse(now, old, reject_reason::kStaleConnection);
  } else {
    send_dreq(now, old);
  }
  return true;
}

IdKey Manager::listener_of(const Way& way, uint64_t service_id, const IpHeader& header) const {
  const auto service = service_of(service_id);
  if (!service) return {};
  auto destination = header.destination;
  destination.port = service->port;
  destination.interface = way.interface;
  const Taking taking = ports_.listener(service->space, destination);
  const auto found = listeners_.find(taking);
  return found == listeners_.end() ? IdKey{} : found->second;
}

Connection* Manager::admit(IdKey key, const Way& way, uint64_t transaction, const IpHeader& header) {
  Id& listener = ids_.at(key);
  if (listener.waiting >= listener.backlog) return nullptr;
  do last_child_ = ipc::kFirstChild | (last_child_ + 1);
  while (ids_.contains({key.client, last_child_}));
  const IdKey child{key.client, last_child_};
  if (auto added = add_id(child, {.channel = listener.channel, .space = listener.space, .named = false});
      !added)
    return nullptr;
  ++listener.waiting;
  Connection& connection = add_connection(child, free_comm_id());
  connection.came_in = true;
  connection.listener = key;
  connection.way = way;
  connection.transaction = transaction;
  connection.local = header.destination;
  connection.local.interface = connection.remote.interface = way.interface;
  connection.remote = header.source;
  return &connection;
}

void Manager::announce(const Connection& connection, IdKey listener, const ipc::CmParameters& parameters) {
  auto event = event_of(connection, ipc::CmEventKind::kConnectRequest);
  event.id = listener.id;
  event.child = connection.owner.id;
  event.parameters = parameters;
  notices_.push_back({listener.client, ids_.at(listener).channel, event});
}

}  // namespace verbena::cm
