// What comes to a connection that we know, or don't.
#include "cm/codec.hpp"
#include "cm/sending.hpp"
#include "roce/bytes.hpp"

namespace verbena::cm {
namespace {

constexpr uint8_t kReplyServiceTimeout = 20;  // 4.3 s
constexpr size_t kMostMissed = 4'096;

}  // namespace

using ipc::CmEventKind;

bool Manager::on_mad(base::Instant now, const Way& way, std::span<const std::byte> mad) {
  const auto message = parse(mad);
  if (!message) return false;
  std::visit([&](const auto& body) { on(now, way, message->transaction, body); }, message->body);
  return true;
}

Connection* Manager::known(uint32_t our_id, uint32_t their_id) {
  const auto found = connections_.find(our_id);
  if (found == connections_.end()) return nullptr;
  const auto expected = found->second.remote_id;
  return expected == 0 || expected == their_id ? &found->second : nullptr;
}

void Manager::send_mra(const Connection& connection, About about, uint8_t service_timeout) {
  send(connection, Mra{.local_id = connection.local_id,
                       .remote_id = connection.remote_id,
                       .about = about,
                       .service_timeout = service_timeout,
                       .private_data = {}});
}

void Manager::send_rtu(const Connection& connection) {
  send(connection,
       Rtu{.local_id = connection.local_id, .remote_id = connection.remote_id, .private_data = {}});
}

void Manager::send_drep(const Connection& connection) {
  send(connection,
       Drep{.local_id = connection.local_id, .remote_id = connection.remote_id, .private_data = {}});
}

void Manager::become_established(Connection& connection) {
  timers_.cancel(connection.local_id);
  connection.state = State::kEstablished;
  tell(connection, CmEventKind::kEstablished);
}

void Manager::on(base::Instant now, const Way& /*way*/, uint64_t /*transaction*/, const Mra& mra) {
  Connection* const connection = known(mra.remote_id, mra.local_id);
  if (connection == nullptr) return;
  const bool fits = (connection->state == State::kReqSent && mra.about == About::kReq) ||
                    (connection->state == State::kRepSent && mra.about == About::kRep);
  if (!fits) return;
  const auto service = base::Duration(int64_t{4'096} << mra.service_timeout);
  connection->repeats = 0;
  timers_.set(connection->local_id,
              now + std::min(service, settings_.longest_service) + settings_.response_timeout);
}

void Manager::on(base::Instant now, const Way& /*way*/, uint64_t /*transaction*/, const Rej& rej) {
  Connection* connection = known(rej.remote_id, rej.local_id);
  if (connection == nullptr && rej.reason == reject_reason::kTimeout) {
    // Who gave up before it got an answer doesn't know our number.
    const RequestKey request{.guid = roce::load_be<uint64_t>(rej.info.data()), .number = rej.local_id};
    const auto found = requests_.find(request);
    if (found != requests_.end()) connection = &connections_.at(found->second);
  }
  // A REJ of a REQ may come without its sender's number.
  if (connection == nullptr && rej.local_id == 0) {
    const auto found = connections_.find(rej.remote_id);
    if (found != connections_.end() && found->second.state == State::kReqSent) connection = &found->second;
  }
  if (connection == nullptr) return;
  switch (connection->state) {
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived:
      return refuse(now, *connection, rej.reason, &rej);
    case State::kEstablished:
    case State::kDreqSent:
      tell(*connection, CmEventKind::kDisconnected);
      return enter_timewait(now, *connection);
    default:
      return;
  }
}

void Manager::on(base::Instant /*now*/, const Way& way, uint64_t transaction, const Rep& rep) {
  Connection* const connection = known(rep.remote_id, rep.local_id);
  if (connection == nullptr) {
    Connection nobody{.way = way, .transaction = transaction};
    return send(nobody, Rej{.local_id = rep.remote_id,
                            .remote_id = rep.local_id,
                            .about = About::kRep,
                            .reason = reject_reason::kInvalidCommId,
                            .info = {},
                            .private_data = {}});
  }
  switch (connection->state) {
    case State::kReqSent:
      break;
    case State::kRepReceived:
      return send_mra(*connection, About::kRep, kReplyServiceTimeout);
    case State::kEstablished:
      if (!connection->came_in) send_rtu(*connection);
      return;
    case State::kRejected: {
      Rej again = connection->rejection;
      again.remote_id = rep.local_id;
      again.about = About::kRep;
      return send(*connection, again);
    }
    default:
      return;
  }
  timers_.cancel(connection->local_id);
  connection->state = State::kRepReceived;
  connection->remote_id = rep.local_id;
  connection->remote_qpn = connection->xrc ? rep.eecn : rep.qpn;
  connection->peer_guid = rep.ca_guid;
  auto event = event_of(*connection, CmEventKind::kConnectResponse);
  event.parameters = {.qpn = connection->remote_qpn,
                      .first_psn = rep.first_psn,
                      .qkey = rep.qkey,
                      .responder_resources = rep.initiator_depth,
                      .initiator_depth = rep.responder_resources,
                      .flow_control = rep.flow_control,
                      .rnr_retry_count = rep.rnr_retry_count,
                      .srq = rep.srq};
  set_private(event.parameters, rep.private_data);
  tell(*connection, event);
}

void Manager::on(base::Instant /*now*/, const Way& /*way*/, uint64_t /*transaction*/, const Rtu& rtu) {
  Connection* const connection = known(rtu.remote_id, rtu.local_id);
  if (connection == nullptr || connection->state != State::kRepSent) return;
  become_established(*connection);
}

void Manager::on(base::Instant now, const Way& way, uint64_t transaction, const Dreq& dreq) {
  Connection* const connection = known(dreq.remote_id, dreq.local_id);
  if (connection == nullptr) {  // it is over here: so be it there
    missed_.emplace_back(dreq.remote_id, dreq.local_id);
    if (missed_.size() > kMostMissed) missed_.pop_front();
    Connection nobody{.way = way, .transaction = transaction};
    return send(nobody, Drep{.local_id = dreq.remote_id, .remote_id = dreq.local_id, .private_data = {}});
  }
  if (connection->local_qpn != 0 && dreq.remote_qpn != connection->local_qpn) return;
  connection->remote_id = dreq.local_id;
  switch (connection->state) {
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepReceived:
      send_drep(*connection);
      return refuse(now, *connection, reject_reason::kConsumerDefined);
    case State::kRepSent:  // the RTU is lost
      become_established(*connection);
      [[fallthrough]];
    case State::kEstablished:
      return on_disconnect_request(*connection);
    case State::kDreqSent:
      send_drep(*connection);
      tell(*connection, CmEventKind::kDisconnected);
      return enter_timewait(now, *connection);
    default:
      // Also where the program takes long to answer: the other end needn't wait for it.
      return send_drep(*connection);
  }
}

void Manager::on_disconnect_request(Connection& connection) {
  timers_.cancel(connection.local_id);
  tell(connection, CmEventKind::kDisconnected);
  leave_peer(connection);
  connection.state = State::kDreqReceived;
}

void Manager::on(base::Instant now, const Way& /*way*/, uint64_t /*transaction*/, const Drep& drep) {
  Connection* const connection = known(drep.remote_id, drep.local_id);
  if (connection == nullptr || connection->state != State::kDreqSent) return;
  tell(*connection, CmEventKind::kDisconnected);
  enter_timewait(now, *connection);
}

}  // namespace verbena::cm
