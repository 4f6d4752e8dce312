#include "port_rig.hpp"

#include <stdexcept>

#include "roce/codec.hpp"
#include "roce/icrc.hpp"

namespace verbena::test {

using roce::Service;
using wire::Drop;

net::Route route_of(Way way) {
  net::Route route{.slot = kPeer.slot(), .recognised = way == Way::kRecognised};
  for (auto* address : {&route.from, &route.to}) {
    if (way == Way::kIpv6)
      address->bytes[0] = 0xfd;
    else
      address->bytes[10] = address->bytes[11] = 0xff;
    address->bytes[12] = 10;
    address->bytes[15] = address == &route.from ? 1 : 2;
  }
  return route;
}

namespace {
roce::Flow flow_of(Way way) {
  const auto route = route_of(way);
  return {.source = route.to.bytes, .destination = route.from.bytes, .source_port = 0xc123};
}
}  // namespace

void seal(std::vector<std::byte>& bytes, Way way, uint16_t id) {
  // What a foreign host chooses: we can't see it.
  roce::append_icrc(flow_of(way), way == Way::kForeign ? 0xbeef : id, bytes);
}

std::vector<std::byte> bytes_of(const roce::Packet& packet, Way way) {
  std::vector<std::byte> bytes(packet.payload.size() + 128);
  bytes.resize(roce::emit(packet, bytes) + roce::kIcrcBytes);
  seal(bytes, way);
  return bytes;
}

size_t RigLink::receive(net::Sink& sink, size_t) {
  size_t handed = 0;
  for (; !waiting.empty(); waiting.pop_front(), ++handed) sink.on_packet(waiting.front());
  for (; !runs.empty(); runs.pop_front(), ++handed) sink.on_run(runs.front());
  return handed;
}

engine::Verdict RigActions::atomic(const engine::AtomicRequest& request, uint64_t& before) {
  if (request.kind != engine::AtomicKind::kWrite) return model_.atomic(request, before);
  if (request.address % sizeof request.first != 0) return engine::Verdict::kMisaligned;
  const iovec bytes{const_cast<uint64_t*>(&request.first), sizeof request.first};
  return model_.write({request.key, request.address, sizeof request.first}, {&bytes, 1}, engine::Tail::kLast);
}

RigConnection::RigConnection(Service service, Way way, size_t region_bytes)
    : actions(kKey, kAddress, region_bytes), service_(service), route_(route_of(way)) {
  switch (service) {
    case Service::kRc:
    case Service::kXrc:
      open_reliable();
      break;
    case Service::kUc:
      uc.emplace(engine::UcResponderConfig{.first_psn = kExpected, .mtu = kMtu}, actions);
      break;
    default:
      ud.emplace(engine::UdResponderConfig{.qkey = kQkey, .mtu = kMtu}, actions);
      break;
  }
}

// XRC: initiator and target at once, which no queue pair is; but each has what is its.
void RigConnection::open_reliable() {
  if (service_ == Service::kXrc) actions.set_queues(kSharedQueues);
  responder.emplace(engine::RcResponderConfig{.service = service_,
                                              .requester = kPeer,
                                              .first_psn = kExpected,
                                              .mtu = kMtu,
                                              .fetches = 4,
                                              .rnr_timer = 9},
                    responders_);
  requester.emplace(engine::RcRequesterConfig{.service = service_,
                                              .target = kPeer,
                                              .first_psn = kSent,
                                              .mtu = kMtu,
                                              .capacity = 16,
                                              .fetches = 4,
                                              .timeout = base::milliseconds(67)},
                    host);
}

Drop RigConnection::on_packet(base::Instant now, const roce::Packet& packet, const net::Received&) {
  order.push_back(packet.bth.operation);
  if (packet.bth.service != service_) return Drop::kBadService;
  if (uc) return wire::drop_of(uc->on_packet(now, packet));
  if (ud) return wire::drop_of(ud->on_packet(now, packet));
  return wire::drop_of(packet.info().request ? responder->on_packet(now, packet)
                                             : requester->on_packet(now, packet));
}

size_t RigConnection::on_more(base::Instant now, const roce::Packet& before, engine::MorePayloads& payloads) {
  if (!responder) return 0;
  return before.info().request ? responder->on_more(before, payloads)
                               : requester->on_more(now, before, payloads);
}

void RigConnection::go_on(base::Instant now) {
  while (responder && responder->poll_transmit(now, answers)) {
  }
  while (requester && requester->poll_transmit(now, requests)) {
  }
}

std::string RigConnection::state() const {
  std::string all = actions.state();
  const auto add = [&](uint64_t value) { all += " " + std::to_string(value); };
  if (responder) add(responder->expected().value << 2 | responder->in_message() << 1 | responder->failed());
  if (requester) {
    add(requester->next_psn().value << 2 | requester->idle() << 1 | requester->failed());
    add(static_cast<uint64_t>(requester->next_deadline().ns));
    add(requester->window().size());
  }
  if (uc) add(uc->expected().value << 2 | uc->in_message() << 1 | uc->failed());
  if (ud) add(ud->failed());
  for (const size_t count :
       {host.ends().size(), host.scattered().size(), requests.sent.size(), answers.sent.size()})
    add(count);
  return all;
}

PortRig::PortRig(Service service, Way way, size_t region_bytes)
    : connection(service, way, region_bytes), way_(way) {
  auto link = std::make_unique<RigLink>();
  link_ = link.get();
  port_ = std::make_unique<wire::Port>(std::move(link), kSlot, wire::Port::Environment{.wake = [] {}});
  port_->add(connection);
}

net::Received PortRig::received(const std::vector<std::byte>& bytes) const {
  const auto route = route_of(way_);
  return {.from = route.to, .to = route.from, .source_port = 0xc123, .bytes = bytes};
}

Drop PortRig::receive(const std::vector<std::byte>& bytes, unsigned segment) {
  auto packet = received(bytes);
  packet.segment = segment;
  return receive(packet);
}

void PortRig::receive_together(std::span<const std::vector<std::byte>> packets, bool merged) {
  std::vector<std::byte> all;
  for (const auto& packet : packets) all.insert(all.end(), packet.begin(), packet.end());
  const net::ReceivedRun run{.about = received({}), .segment_bytes = packets.front().size(), .bytes = all};
  if (merged)
    link_->runs.push_back(run);
  else
    for (size_t i = 0; i < run.packets(); ++i) link_->waiting.push_back(run.packet(i));
  (void)port_->drive(now, verbs::Wire::Driver::kHelper);
}

Drop PortRig::receive(net::Received packet) {
  link_->waiting.push_back(packet);
  (void)port_->drive(now, verbs::Wire::Driver::kHelper);
  Drop reason = Drop::kNone;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const uint64_t count = port_->counters().drops[i];
    if (count == seen_[i]) continue;
    if (count != seen_[i] + 1 || reason != Drop::kNone) throw std::logic_error("counted twice");
    reason = static_cast<Drop>(i);
    seen_[i] = count;
  }
  return reason;
}

}  // namespace verbena::test
