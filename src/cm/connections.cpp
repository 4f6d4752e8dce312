// What all states share: records, repeating, giving up.
#include <fmt/format.h>

#include <algorithm>

#include "cm/codec.hpp"
#include "cm/manager.hpp"
#include "cm/sending.hpp"
#include "roce/bytes.hpp"

namespace verbena::cm {

using ipc::CmEventKind;

Manager::Manager(Settings settings, Environment environment)
    : settings_(settings),
      environment_(std::move(environment)),
      guid_(environment_.random()),
      ports_(settings.ephemeral),
      // At random, so that the next agent names no ids that this one's clients bring with them.
      last_child_(ipc::kFirstChild | static_cast<uint32_t>(environment_.random())) {}

uint32_t Manager::free_comm_id() {
  while (true) {
    const auto id = static_cast<uint32_t>(environment_.random());
    if (id != 0 && !connections_.contains(id)) return id;
  }
}

Connection& Manager::add_connection(IdKey owner, uint32_t local_id) {
  Connection& connection = connections_[local_id];
  connection.local_id = local_id;
  connection.owner = owner;
  connection.transaction = environment_.random() | 1;
  connection.timewait = settings_.longest_timewait;
  if (const auto id = ids_.find(owner); id != ids_.end()) id->second.connection = local_id;
  return connection;
}

void Manager::no_longer_waits(Connection& connection) {
  if (const auto listener = ids_.find(connection.listener); listener != ids_.end())
    --listener->second.waiting;
  connection.listener = {};
}

void Manager::let_go(Connection& connection) {
  if (const auto id = ids_.find(connection.owner); id != ids_.end()) id->second.connection = 0;
  connection.owner = {};
  no_longer_waits(connection);
}

void Manager::forget(Connection& connection) {
  let_go(connection);
  timers_.cancel(connection.local_id);
  if (const auto found = requests_.find(connection.request);
      found != requests_.end() && found->second == connection.local_id)
    requests_.erase(found);
  leave_peer(connection);
  connections_.erase(connection.local_id);
}

void Manager::leave_peer(const Connection& connection) {
  const auto found = by_peer_.find({connection.way.remote, connection.remote_qpn});
  if (found != by_peer_.end() && found->second == connection.local_id) by_peer_.erase(found);
}

void Manager::enter_timewait(base::Instant now, Connection& connection) {
  no_longer_waits(connection);
  leave_peer(connection);
  connection.state = State::kTimewait;
  timers_.set(connection.local_id, now + connection.timewait);
}

void Manager::repeat(base::Instant now, Connection& connection) {
  mads_.push_back({connection.way, connection.message});
  timers_.set(connection.local_id, now + settings_.response_timeout);
}

void Manager::send_dreq(base::Instant now, Connection& connection) {
  no_longer_waits(connection);
  leave_peer(connection);
  connection.state = State::kDreqSent;
  send_until_answered(now, connection,
                      Dreq{.local_id = connection.local_id,
                           .remote_id = connection.remote_id,
                           .remote_qpn = connection.remote_qpn,
                           .private_data = {}});
}

void Manager::send_rejection(base::Instant now, Connection& connection, Rej rej) {
  rej.local_id = connection.local_id;
  rej.remote_id = connection.remote_id;
  connection.rejection = rej;
  connection.state = State::kRejected;
  leave_peer(connection);
  send(connection, rej);
  let_go(connection);
  timers_.set(connection.local_id, now + settings_.answering);
}

Rej Manager::giving_up() const {
  // Without the other's number for the connection it finds it by ours and the GUID (IBA 12.6.7.2, timeout).
  Rej rej{.about = About::kReq,
          .info_length = 8,
          .reason = reject_reason::kTimeout,
          .info = {},
          .private_data = {}};
  roce::store_be(rej.info.data(), guid_);
  return rej;
}

// The program wants no more of it: the other end gets to know, in whatever state it is.
void Manager::abandon(base::Instant now, Connection& connection) {
  constexpr auto consumer = [](About about) {
    return Rej{.about = about, .reason = reject_reason::kConsumerDefined, .info = {}, .private_data = {}};
  };
  switch (connection.state) {
    case State::kReqSent:
      return send_rejection(now, connection, giving_up());
    case State::kReqReceived:
      return send_rejection(now, connection, consumer(About::kReq));
    case State::kRepReceived:
    case State::kRepSent: {
      // The other may be established already, or be about to: a REJ for one that waits, and a DREQ, which is
      // repeated, for one that doesn't.
      Rej rej = consumer(connection.state == State::kRepReceived ? About::kRep : About::kOther);
      rej.local_id = connection.local_id;
      rej.remote_id = connection.remote_id;
      send(connection, rej);
      let_go(connection);
      return send_dreq(now, connection);
    }
    case State::kEstablished:
      let_go(connection);
      return send_dreq(now, connection);
    case State::kDreqReceived:
      send(connection,
           Drep{.local_id = connection.local_id, .remote_id = connection.remote_id, .private_data = {}});
      let_go(connection);
      return enter_timewait(now, connection);
    case State::kSidrSent:
      return forget(connection);
    case State::kSidrReceived:
      (void)answer_service(now, connection, sidr_status::kReject, {});
      return let_go(connection);
    case State::kDreqSent:
    case State::kTimewait:
    case State::kRejected:
    case State::kSidrAnswered:
      return let_go(connection);
  }
}

ipc::CmEvent Manager::event_of(const Connection& connection, CmEventKind kind, int status) const {
  return {.event = kind,
          .id = connection.owner.id,
          .status = status,
          .local_comm_id = connection.local_id,
          .remote_comm_id = connection.remote_id,
          .local = connection.local,
          .remote = connection.remote,
          .parameters = {}};
}

void Manager::tell(const Connection& connection, const ipc::CmEvent& event) {
  const auto id = ids_.find(connection.owner);
  if (id == ids_.end()) return;
  notices_.push_back({connection.owner.client, id->second.channel, event});
}

// The other end wants it no more, before it was established.
void Manager::refuse(base::Instant now, Connection& connection, uint16_t reason, const Rej* rej) {
  auto event = event_of(connection, CmEventKind::kRejected, reason);
  if (rej != nullptr) set_private(event.parameters, rej->private_data);
  tell(connection, event);
  let_go(connection);
  enter_timewait(now, connection);
}

void Manager::on_timer(base::Instant now) {
  while (const auto local_id = timers_.take_due(now)) {
    const auto found = connections_.find(*local_id);
    if (found != connections_.end()) on_due(now, found->second);
  }
}

void Manager::on_due(base::Instant now, Connection& connection) {
  const bool last = connection.repeats >= settings_.retries;
  switch (connection.state) {
    case State::kReqSent:
    case State::kRepSent:
    case State::kDreqSent:
    case State::kSidrSent:
      if (last) break;
      ++connection.repeats;
      return repeat(now, connection);
    case State::kTimewait:
      tell(connection, CmEventKind::kTimewaitExit);
      return forget(connection);
    case State::kRejected:
    case State::kSidrAnswered:
      return forget(connection);
    case State::kEstablished:  // taken over from an earlier agent
      if (!connections_.contains(connection.remote_id) && environment_.is_local(connection.remote))
        send_dreq(now, connection);
      return;
    default:
      return;  // it has no timer
  }
  // Nobody answers.
  if (connection.state == State::kDreqSent) {
    tell(connection, CmEventKind::kDisconnected);
    return enter_timewait(now, connection);
  }
  tell(connection, CmEventKind::kUnreachable, -ETIMEDOUT);
  let_go(connection);
  abandon(now, connection);
}

}  // namespace verbena::cm
