#include "net/fault_link.hpp"

#include <utility>

namespace verbena::net {

// The two directions must not make the same decisions: the second one's seed is another.
FaultLink::FaultLink(Link& inner, uint64_t seed, Clock clock)
    : inner_(inner), clock_(std::move(clock)), outgoing_(seed), incoming_(~seed) {}

std::optional<base::Instant> FaultLink::next_deadline() const {
  const auto out = outgoing_.next_deadline();
  const auto in = incoming_.next_deadline();
  if (!out || !in) return out ? out : in;
  return std::min(*out, *in);
}

bool FaultLink::send(const Run& run) {
  if (outgoing_.quiet()) return inner_.send(run);
  bool sent = true;
  const auto send_one = [&](const Route& route, std::span<const std::byte> packet) {
    sent &= inner_.send({route, static_cast<uint16_t>(packet.size()), packet});
  };
  const base::Instant now = clock_();
  for (size_t i = 0; i < run.packets(); ++i) outgoing_.pass(now, run.route, run.packet(i), send_one);
  return sent;
}

void FaultLink::send_due() {
  outgoing_.release(clock_(), [&](const Route& route, std::span<const std::byte> packet) {
    inner_.send({route, static_cast<uint16_t>(packet.size()), packet});
  });
}

size_t FaultLink::receive(Sink& sink, size_t budget) {
  struct Between final : Sink {
    Between(FaultLane<Received>& by, Sink& to, base::Instant at) : lane(by), sink(to), now(at) {}
    void on_packet(const Received& packet) override { lane.pass(now, packet, packet.bytes, *this); }
    void operator()(Received about, std::span<const std::byte> bytes) {
      about.bytes = bytes;
      sink.on_packet(about);
      ++handed;
    }
    FaultLane<Received>& lane;
    Sink& sink;
    base::Instant now;
    size_t handed = 0;
  };
  if (incoming_.quiet()) return inner_.receive(sink, budget);
  Between between(incoming_, sink, clock_());
  incoming_.release(between.now, between);
  inner_.receive(between, budget);
  return between.handed;
}

}  // namespace verbena::net
