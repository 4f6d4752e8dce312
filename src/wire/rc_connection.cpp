#include "wire/rc_connection.hpp"

#include <algorithm>

#include "engine/credits.hpp"

namespace verbena::wire {

using verbs::SendOutcome;
using verbs::SendRequest;

namespace {
// Packets under way, and how many to be sent are then worth a system call.
constexpr int64_t kCrowd = 16;
constexpr size_t kWorthACall = 32;
constexpr int64_t kGreatCrowd = 128;  // which keeps the peer busy until a run is full

// The keeper carries requests out in other processes, as a local requester does.
verbs::RequesterIdentity target_identity(const Peering& peering, base::Slot ours) {
  auto identity = identity_of(peering, ours, IBV_QPT_XRC_SEND);
  identity.by_network = false;
  return identity;
}
}  // namespace

RcConnection::RcConnection(std::shared_ptr<Port> port, verbs::Process& process,
                           std::shared_ptr<verbs::QueueOwner> self, const Peering& peering,
                           std::unique_ptr<verbs::LaneFinder> lanes)
    : ConnectedPath(std::move(port), process, self, peering),
      actions_(self, peering.own, identity_of(peering, process.slot(), IBV_QPT_RC)),
      xrc_(lanes
               ? std::make_unique<verbs::XrcResponder>(
                     std::move(self), peering.own, target_identity(peering, process.slot()), std::move(lanes))
               : nullptr),
      responder_({.service = peering.service,
                  .requester = peering.target,
                  .first_psn = peering.first_expected,
                  .mtu = peering.mtu,
                  .fetches = std::max(peering.fetches_granted, 1u)},
                 xrc_ ? static_cast<engine::ResponderActions&>(*xrc_) : actions_) {
  requests_.set_other_path([this] {
    // A lost link or the peer may have changed it while the retries went on: they were for the path before.
    const base::Duration retrying =
        std::max(rules_.timeout, base::Duration(alternate_timeout_)) * (rules_.retries + 1);
    const bool changed = change_path();
    if (!changed_within(base::now(), retrying) && !changed) return false;
    requester_->set_retry_rules(base::Duration(alternate_timeout_), rules_.retries, rules_.rnr_retries);
    return true;
  });
}

RcConnection::~RcConnection() {
  leave();
  tell_under_way(0);
}

void RcConnection::tell_under_way(uint32_t packets) {
  port_->add_under_way(int64_t{packets} - std::exchange(told_under_way_, packets));
}

void RcConnection::set_rules(const verbs::RetryRules& rules) {
  rules_ = rules;
  if (requester_) {
    requester_->set_retry_rules(rules.timeout, rules.retries, rules.rnr_retries);
    return;
  }
  const auto queue = requests_.begin();
  requester_.emplace(engine::RcRequesterConfig{.service = peering_.service,
                                               .target = peering_.target,
                                               .first_psn = next_psn_,
                                               .mtu = peering_.mtu,
                                               .capacity = queue ? queue->limits().requests : 1,
                                               .fetches = std::max(rules.fetches, 1u),
                                               .timeout = rules.timeout,
                                               .retries = rules.retries,
                                               .rnr_retries = rules.rnr_retries,
                                               .chance = peering_.own.value},
                     requests_);
}

SendOutcome RcConnection::advance(const SendRequest& request, verbs::SendProgress&, uint64_t) {
  if (!requester_ || requester_->full()) return {SendOutcome::Kind::kFull};
  if (!requests_.readable(request)) return QueueRequests::unreadable();
  requester_->post(request_of(request));
  return {SendOutcome::Kind::kTaken};
}

void RcConnection::push() {
  const base::Instant now = base::now();
  Port::Sending sending = this->sending(now, Port::Sending::Pace::kOwn);
  if (answering_.load(std::memory_order_relaxed)) return;
  // Before this message: one alone is no crowd, however long.
  const int64_t under_way = port_->under_way();
  const bool more = emit_requests(sending);
  // Where much is under way, by this queue pair or by all together, nobody gains by sending each short
  // message at once; together they cost one system call. The next post or poll sends them at the latest, or
  // the helper.
  const size_t worthwhile = under_way > kGreatCrowd ? net::kMaxRunPackets : kWorthACall;
  if (requester_ && under_way > kCrowd && sending.waiting() > 0 && sending.waiting() < worthwhile)
    port_->schedule(*this, now, now);
  else
    sending.flush();
  note_progress(now, more);  // what is under way needn't wait for it
}

void RcConnection::send_requests(base::Instant now, Port::Sending& sending) {
  note_progress(now, emit_requests(sending));
}

// True: there is more to be sent than a turn allows.
bool RcConnection::emit_requests(Port::Sending& sending) {
  if (!requester_ || stopped_) return false;
  requester_->set_whole_replays(!recognised());
  requester_->set_even(recognised());
  const bool carries = owed_ && has_unsent();
  if (carries) carry_owed(sending);
  const bool more = sending.send_from(*requester_);
  // Behind others' answers the acknowledgement wouldn't be taken first.
  if (carries) sending.flush();
  return more;
}

void RcConnection::note_progress(base::Instant now, bool more) {
  if (!requester_ || stopped_) return;
  // A deadline that has passed is the timers' business as well: they may be put off.
  port_->schedule(*this, more ? now : std::max(requester_->next_deadline(), now + base::Duration(1)), now);
  port_->account(requester_->counters(), told_);
  tell_under_way(requester_->under_way());
}

Drop RcConnection::on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) {
  if (packet.bth.service != peering_.service) return Drop::kBadService;
  if (!admit(packet, received)) return Drop::kWrongAddress;
  if (packet.info().request) {
    // An XRC initiator answers nobody: a request for it is a stranger's.
    if (peering_.service == roce::Service::kXrc && !xrc_) return Drop::kBadService;
    answering_.store(true, std::memory_order_relaxed);
    if (owes_acknowledgement()) take_back(sending(now, Port::Sending::Pace::kOwn));
    responder_.set_rnr_timer(xrc_ ? xrc_->rnr_timer_code() : actions_.rnr_timer_code());
    return drop_of(responder_.on_packet(now, packet));
  }
  const auto queue = requests_.queue();
  auto reason = engine::DropReason::kSilence;
  if (queue)
    port_->conclude_later(queue->answered([&] {
      if (requester_ && !stopped_) reason = requester_->on_packet(now, packet);
    }));
  return drop_of(reason);
}

size_t RcConnection::on_more(base::Instant now, const roce::Packet& before, engine::MorePayloads& payloads) {
  if (before.info().request) return responder_.on_more(before, payloads);
  const auto queue = requests_.queue();
  size_t taken = 0;
  if (queue)
    port_->conclude_later(queue->answered([&] {
      if (requester_ && !stopped_) taken = requester_->on_more(now, before, payloads);
    }));
  return taken;
}

void RcConnection::go_on(base::Instant now) {
  if (!responder_.only_acknowledges()) send_answers(now);
  bool concluded = false;
  if (const auto queue = requests_.queue())
    port_->conclude_later(queue->answered([&] {
      if (requester_ && !stopped_ && !port_->behind() && requester_->next_deadline() <= now)
        requester_->on_timer(now);
      Port::Sending sending = this->sending(now, Port::Sending::Pace::kOwn);
      acknowledge_or_put_off(now, sending, has_unsent());
      send_requests(now, sending);
      concluded = true;
    }));
  if (concluded) return;
  Port::Sending sending = this->sending(now, Port::Sending::Pace::kOwn);
  acknowledge_or_put_off(now, sending, false);
}

// Requests that follow take it along.
void RcConnection::acknowledge_or_put_off(base::Instant now, Port::Sending& sending, bool requests_follow) {
  answering_.store(false, std::memory_order_relaxed);
  if (!responder_.only_acknowledges()) return;
  if (requests_follow || port_->put_off(*this))
    owed_ = {.packet = responder_.take_acknowledgement(),
             .credits = xrc_ ? engine::kCreditsUncounted : actions_.credits(),
             .posted = actions_.posted_then()};
  else
    send_answers(now, sending);
}

// The program may have posted receives since, and the peer wait for them.
void RcConnection::carry_owed(Port::Sending& sending) {
  if (owed_->credits != engine::kCreditsUncounted) {
    const uint32_t credits = owed_->credits + (actions_.posted_now() - owed_->posted);
    owed_->packet.aeth.syndrome = static_cast<uint8_t>(roce::syndrome::kAck | engine::credit_code(credits));
  }
  sending.carry(owed_->packet);
  owed_.reset();
  Port::settle(*this);
}

// A post finds it owed, or sent.
void RcConnection::acknowledge(base::Instant now) {
  Port::Sending sending = this->sending(now, Port::Sending::Pace::kOwn);
  take_back(sending);
  send_answers(now, sending);
}

// What was put off may be out of date: more has come, or receives were posted.
void RcConnection::take_back(const Port::Sending&) {
  if (!owed_) return;
  owed_.reset();
  responder_.owe_acknowledgement();
}

void RcConnection::send_answers(base::Instant now) {
  if (!responder_.has_answers()) return;
  Port::Sending sending = this->sending(now, Port::Sending::Pace::kOwn);
  send_answers(now, sending);
}

void RcConnection::send_answers(base::Instant now, Port::Sending& sending) {
  (void)sending.send_from(responder_);
  if (responder_.has_answers()) port_->schedule(*this, now, now);
}

}  // namespace verbena::wire
