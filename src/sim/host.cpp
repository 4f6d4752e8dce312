#include "sim/host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "roce/codec.hpp"
#include "sim/datagram_sink.hpp"

namespace verbena::sim {

using base::Instant;
using engine::kNoDeadline;

namespace {

constexpr unsigned kPacketsATurn = 16;
constexpr base::Duration kLookAgain = std::chrono::microseconds(20);

}  // namespace

Host::Host(EventQueue& events, Network& network, Journal& journal, Oracle& oracle, const HostConfig& config,
           Random random)
    : events_(events),
      network_(network),
      journal_(journal),
      oracle_(oracle),
      config_(config),
      random_(random),
      pools_(config.pools, random.fork().fork()) {
  id_ = network.add([this](Datagram datagram) { on_datagram(std::move(datagram)); });
}

Endpoint& Host::add(const EndpointConfig& config, HostId peer) {
  endpoints_.push_back(
      std::make_unique<Endpoint>(config, events_, journal_, oracle_, counter_, pools_, random_.fork()));
  peers_.push_back(peer);
  return *endpoints_.back();
}

void Host::wake() { schedule(events_.now()); }

// One poll is under way at a time; an earlier one replaces it.
void Host::schedule(Instant when) {
  when = std::max(when, stopped_until_);
  if (when == kNoDeadline || when >= next_poll_) return;
  next_poll_ = when;
  events_.at(when, [this, when] {
    if (when == next_poll_) poll();
  });
}

void Host::on_datagram(Datagram datagram) {
  if (crashed_ || inbox_bytes_ + datagram.bytes.size() > config_.inbox_bytes) {
    ++counters_.inbox_overflows;
    return network_.give_back(std::move(datagram.bytes));
  }
  inbox_bytes_ += datagram.bytes.size();
  inbox_.push_back(std::move(datagram));
  const auto most = static_cast<uint64_t>(config_.poll_delay.count());
  schedule(events_.now() + base::Duration(static_cast<int64_t>(random_.below(most + 1))));
}

void Host::poll() {
  next_poll_ = kNoDeadline;
  if (crashed_) return;
  if (events_.now() < stopped_until_) return schedule(stopped_until_);
  take_inbox();
  const Instant now = events_.now();
  pools_.post_due(now);
  for (const auto& endpoint : endpoints_) {
    if (!endpoint->in_error() && endpoint->requester().next_deadline() <= now)
      endpoint->requester().on_timer(now);
    endpoint->run_program();
  }
  transmit();
  Instant next =
      std::min(pools_.next_deadline(), network_.has_room(id_) ? kNoDeadline : network_.room_at(id_));
  for (const auto& endpoint : endpoints_) {
    next = std::min(next, endpoint->next_deadline());
    // An action found no room: nobody rings when there is, so we look again.
    if (endpoint->responder().has_answers()) next = std::min(next, now + kLookAgain);
  }
  schedule(next);
}

// Datagrams of the inbox that differ from the first one in number and payload only, as a kernel would merge
// them. Those that were taken are no longer there.
class Host::Followers final : public engine::MorePayloads {
 public:
  Followers(Host& host, const Datagram& first, const roce::Packet& packet) : host_(host) {
    roce::Packet expected = packet;
    for (const Datagram& datagram : host.inbox_) {
      roce::next_in_run(expected, packet.payload.size());
      const std::span<const std::byte> bytes = datagram.bytes;
      if (datagram.from != first.from || bytes.size() != first.bytes.size()) break;
      const auto next = roce::parse(bytes.first(bytes.size() - roce::kIcrcBytes));
      if (!next || next->bth != expected.bth || next->xrc_srq != expected.xrc_srq ||
          next->reth != expected.reth || next->aeth != expected.aeth)
        break;
      payloads_.push_back(next->payload);
    }
  }
  ~Followers() {
    for (; taken_ > 0; --taken_) {
      host_.network_.give_back(std::move(host_.inbox_.front().bytes));
      host_.inbox_.pop_front();
    }
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  [[nodiscard]] size_t most() const override { return payloads_.size() - taken_; }
  [[nodiscard]] std::span<const std::byte> next() override {
    if (most() == 0) return {};
    const Datagram& datagram = host_.inbox_[taken_];
    if (!roce::icrc_fits(host_.network_.flow(datagram.from, host_.id_), roce::IdRule::kSegment, 0,
                         datagram.bytes))
      return {};
    ++host_.counters_.drops[static_cast<size_t>(engine::DropReason::kNone)];
    return payloads_[taken_++];
  }

 private:
  Host& host_;
  std::vector<std::span<const std::byte>> payloads_;  // of the inbox's first ones
  size_t taken_ = 0;
};

void Host::take_inbox() {
  while (!inbox_.empty()) {
    Datagram datagram = std::move(inbox_.front());
    inbox_.pop_front();
    take(datagram);
    network_.give_back(std::move(datagram.bytes));
  }
  inbox_bytes_ = 0;
}

void Host::take(const Datagram& datagram) {
  const std::span<const std::byte> bytes = datagram.bytes;
  if (!roce::icrc_fits(network_.flow(datagram.from, id_), roce::IdRule::kSegment, 0, bytes)) {
    ++counters_.bad_bytes;
    return;
  }
  const auto packet = roce::parse(bytes.first(bytes.size() - roce::kIcrcBytes));
  if (!packet)
    return oracle_.wrong(fmt::format("host {}: a packet that can't be parsed has a right ICRC", id_));
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    Endpoint& endpoint = *endpoints_[i];
    if (endpoint.config().qpn != packet->bth.destination || peers_[i] != datagram.from) continue;
    const Instant now = events_.now();
    engine::DropReason reason = engine::DropReason::kSilence;
    if (packet->info().request)
      reason = endpoint.responder().on_packet(now, *packet);
    else if (!endpoint.in_error())
      reason = endpoint.requester().on_packet(now, *packet);
    ++counters_.drops[static_cast<size_t>(reason)];
    if (reason != engine::DropReason::kNone || !engine::may_be_followed(*packet)) return;
    Followers followers(*this, datagram, *packet);
    if (packet->info().request)
      (void)endpoint.responder().on_more(*packet, followers);
    else if (!endpoint.in_error())
      (void)endpoint.requester().on_more(now, *packet, followers);
    return;
  }
  oracle_.wrong(fmt::format("host {}: a packet for nobody", id_));
}

// Turn by turn, so that no connection holds up the others.
void Host::transmit() {
  const Instant now = events_.now();
  for (bool sent = true; sent;) {
    sent = false;
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      const size_t which = (turn_ + i) % endpoints_.size();
      Endpoint& endpoint = *endpoints_[which];
      DatagramSink sink(network_, id_, peers_[which]);
      for (unsigned count = 0; count < kPacketsATurn && endpoint.responder().poll_transmit(now, sink);
           ++count)
        sent = true;
      for (unsigned count = 0;
           count < kPacketsATurn && !endpoint.in_error() && endpoint.requester().poll_transmit(now, sink);
           ++count)
        sent = true;
    }
    if (!endpoints_.empty()) turn_ = (turn_ + 1) % endpoints_.size();
  }
}

void Host::crash() {
  crashed_ = true;
  for (const auto& endpoint : endpoints_) endpoint->vanish();
}

void Host::judge() {
  for (const auto& endpoint : endpoints_) endpoint->judge();
  if (crashed_) return;
  if (counter_.value < counter_.successes || counter_.value > counter_.attempts)
    oracle_.wrong(fmt::format("host {}: the counter is at {} after {} successes of {}", id_, counter_.value,
                              counter_.successes, counter_.attempts));
}

}  // namespace verbena::sim
