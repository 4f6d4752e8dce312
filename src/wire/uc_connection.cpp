#include "wire/uc_connection.hpp"

namespace verbena::wire {

using verbs::SendOutcome;
using verbs::SendRequest;

UcConnection::UcConnection(std::shared_ptr<Port> port, verbs::Process& process,
                           std::shared_ptr<verbs::QueueOwner> self, const Peering& peering)
    : ConnectedPath(std::move(port), process, self, peering),
      actions_(std::move(self), peering.own, identity_of(peering, process.slot(), IBV_QPT_UC)),
      responder_({.first_psn = peering.first_expected, .mtu = peering.mtu}, actions_) {}

UcConnection::~UcConnection() { leave(); }

void UcConnection::set_rules(const verbs::RetryRules&) {
  if (!requester_) make_requester();
}

void UcConnection::make_requester() {
  const auto queue = requests_.begin();
  requester_.emplace(engine::UcRequesterConfig{.target = peering_.target,
                                               .first_psn = next_psn_,
                                               .mtu = peering_.mtu,
                                               .capacity = queue ? queue->limits().requests : 1},
                     requests_);
}

void UcConnection::resume() {
  if (requester_) next_psn_ = requester_->next_psn();
  make_requester();
  stopped_ = false;
}

SendOutcome UcConnection::advance(const SendRequest& request, verbs::SendProgress&, uint64_t) {
  if (!requester_ || requester_->full()) return {SendOutcome::Kind::kFull};
  if (!requests_.readable(request)) return QueueRequests::unreadable();
  requester_->post(request_of(request));
  return {SendOutcome::Kind::kTaken};
}

void UcConnection::push() {
  const base::Instant now = base::now();
  Port::Sending sending = this->sending(now, Port::Sending::Pace::kPaced);
  send_requests(now, sending);
  sending.flush();
}

void UcConnection::send_requests(base::Instant now, Port::Sending& sending) {
  if (!requester_ || stopped_) return;
  for (unsigned sent = 0; sent < kBurst; ++sent)
    if (!requester_->poll_transmit(now, sending)) {
      if (!requester_->idle()) sending.await_turn(*this);
      return;
    }
  port_->schedule(*this, now, now);
}

Drop UcConnection::on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) {
  if (packet.bth.service != roce::Service::kUc) return Drop::kBadService;
  if (!admit(packet, received)) return Drop::kWrongAddress;
  return drop_of(responder_.on_packet(now, packet));
}

void UcConnection::go_on(base::Instant now) {
  if (const auto queue = requests_.queue())
    port_->conclude_later(queue->answered([&] {
      Port::Sending sending = this->sending(now, Port::Sending::Pace::kPaced);
      send_requests(now, sending);
    }));
}

}  // namespace verbena::wire
