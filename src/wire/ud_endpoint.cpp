#include "wire/ud_endpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "roce/grh.hpp"

namespace verbena::wire {

using engine::Verdict;
using verbs::SendOutcome;
using verbs::SendRequest;

namespace {

// IBA 10.2.5: with this bit set in a request the queue pair's own key is sent.
constexpr uint32_t kOwnQkey = 0x80000000;
// How soon a neighbour's box that is full is looked at again.
constexpr base::Duration kLaneFull = std::chrono::microseconds(20);

net::Route route_to(const verbs::Datagram& datagram) {
  const auto& vector = datagram.vector;
  return {.from = {vector.own_gid},
          .to = {vector.peer_gid},
          .interface = vector.interface,
          .traffic_class = vector.traffic_class,
          .hop_limit = vector.hop_limit != 0 ? vector.hop_limit : uint8_t{64},
          .slot = datagram.target.slot()};
}

}  // namespace

UdEndpoint::UdEndpoint(std::shared_ptr<Port> port, verbs::Process& process,
                       std::shared_ptr<verbs::QueueOwner> self, const UdConfig& config)
    : PipelinedPath(std::move(port), process, self, config.domain),
      config_(config),
      qkey_(config.qkey),
      actions_(std::move(self), config.own, {.accessor = process.slot(), .type = IBV_QPT_UD}),
      responder_({.qkey = config.qkey, .mtu = config.mtu}, *this) {}

UdEndpoint::~UdEndpoint() { leave(); }

void UdEndpoint::set_rules(const verbs::RetryRules& rules) {
  qkey_.store(rules.qkey, std::memory_order_relaxed);
  if (!requester_) make_requester();
}

void UdEndpoint::make_requester() {
  const auto queue = requests_.begin();
  posted_ = queue ? queue->next_number() : 0;
  requester_.emplace(engine::UdRequesterConfig{.source = config_.own,
                                               .first_psn = next_psn_,
                                               .mtu = config_.mtu,
                                               .capacity = queue ? queue->limits().requests : 1},
                     requests_);
}

void UdEndpoint::resume() {
  if (requester_) next_psn_ = requester_->next_psn();
  make_requester();
  stopped_ = false;
}

SendOutcome UdEndpoint::advance(const SendRequest& request, verbs::SendProgress&, uint64_t) {
  if (!requester_ || requester_->full()) return {SendOutcome::Kind::kFull};
  if (!requests_.readable(request)) return QueueRequests::unreadable();
  if (request.datagram->vector.this_host) port_->prepare_lane(request.datagram->target.slot());
  const uint32_t qkey = request.datagram->qkey;
  requester_->post({.request = request_of(request),
                    .target = request.datagram->target,
                    .qkey = (qkey & kOwnQkey) != 0 ? qkey_.load(std::memory_order_relaxed) : qkey,
                    .address = posted_++});
  return {SendOutcome::Kind::kTaken};
}

void UdEndpoint::push() { send_requests(base::now()); }

void UdEndpoint::send_requests(base::Instant now) {
  if (!requester_ || stopped_) return;
  Port::Sending sending(*port_, {}, false, now, Port::Sending::Pace::kPaced);
  sending_ = &sending;
  now_ = now;
  unsigned sent = 0;
  while (sent < kBurst && requester_->poll_transmit(now, *this)) ++sent;
  sending_ = nullptr;
  sending.flush();
  if (sent == kBurst)
    port_->schedule(*this, now, now);
  else if (!requester_->idle() && by_lane_)
    port_->schedule(*this, now + kLaneFull, now);
  else if (!requester_->idle())
    sending.await_turn(*this);
}

engine::PacketSink& UdEndpoint::way(const engine::DatagramRequest& request) {
  const verbs::Datagram& datagram = *requests_.queue()->request(request.address).datagram;
  Lane* lane = datagram.vector.this_host ? port_->lane(datagram.target.slot()) : nullptr;
  by_lane_ = lane != nullptr;
  if (by_lane_) {
    lane->aim(datagram, now_);
    return *lane;
  }
  net::Route route = route_to(datagram);
  route.recognised = datagram.vector.this_host || port_->knows(route);
  sending_->turn_to(route);
  return *sending_;
}

Drop UdEndpoint::on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) {
  if (packet.bth.service != roce::Service::kUd) return Drop::kBadService;
  // IBA 10.5.2.1: a sender that is a member of the group gets no copy.
  if (received.to.multicast() && packet.deth.source == config_.own &&
      std::ranges::find(config_.addresses, received.from) != config_.addresses.end())
    return Drop::kNone;
  responder_.set_qkey(qkey_.load(std::memory_order_relaxed));
  received_ = &received;
  udp_payload_ = packet.info().header_bytes + ((packet.payload.size() + 3) & ~size_t{3}) + roce::kIcrcBytes;
  return drop_of(responder_.on_packet(now, packet));
}

Verdict UdEndpoint::deliver(const engine::Arrival& arrival, std::span<const iovec> from) {
  auto grh =
      roce::grh_of(received_->flow(),
                   {.traffic_class = received_->traffic_class, .limit = received_->hop_limit}, udp_payload_);
  std::array<iovec, 2> pieces{{{grh.data(), grh.size()}}};
  const size_t count = from.empty() ? 1 : 2;
  if (count == 2) pieces[1] = from.front();
  return actions_.deliver_datagram(arrival, std::span(pieces).first(count));
}

void UdEndpoint::go_on(base::Instant now) {
  if (const auto queue = requests_.queue())
    port_->conclude_later(queue->answered([&] { send_requests(now); }));
}

}  // namespace verbena::wire
