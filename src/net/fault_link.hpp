// A link that loses, doubles, reorders, delays and damages packets, each direction by its own rules. It acts
// on single packets, inside runs as well.
#pragma once

#include <functional>

#include "net/fault_lane.hpp"
#include "net/link.hpp"

namespace verbena::net {

class FaultLink final : public Link {
 public:
  using Clock = std::function<base::Instant()>;  // handed in, so that simulated time works

  FaultLink(Link& inner, uint64_t seed, Clock clock = base::now);

  // Each on the thread of its direction.
  void set_outgoing(const Faults& faults) { outgoing_.set(faults); }
  void set_incoming(const Faults& faults) { incoming_.set(faults); }
  [[nodiscard]] const FaultCounters& outgoing() const { return outgoing_.counters(); }
  [[nodiscard]] const FaultCounters& incoming() const { return incoming_.counters(); }

  // When send_due() or receive() has a delayed packet to hand on; nothing: there is none.
  [[nodiscard]] std::optional<base::Instant> next_deadline() const override;
  // Sends delayed packets whose time has come, as each send does, too.
  void send_due();

  bool send(const Run& run) override;
  [[nodiscard]] uint16_t source_port(const Route& route) override { return inner_.source_port(route); }
  size_t receive(Sink& sink, size_t budget) override;
  void tell_hops() override { inner_.tell_hops(); }
  [[nodiscard]] int fd() const override { return inner_.fd(); }

 private:
  Link& inner_;
  Clock clock_;
  FaultLane<Route> outgoing_;
  FaultLane<Received> incoming_;
};

}  // namespace verbena::net
