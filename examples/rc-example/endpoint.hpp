// A queue pair that is connected by hand.
#pragma once

#include "rc-example/card.hpp"
#include "rc-example/device.hpp"

namespace examples {

struct Endpoint {
  Endpoint(const Place& place, const Options& options);

  /// RESET to INIT: what peers may do is decided here. RECVs can be posted from now on.
  void to_init(const Place& place);
  /// INIT to RTR, the queue pair receives; RTR to RTS, it sends. Both ends must be in RTR before one sends.
  void connect(const Place& place, const Card& peer);
  /// What the peer must know of us.
  [[nodiscard]] Card card(const Place& place, const Options& options, const Regions& regions) const;

  Pd pd;
  Cq cq;
  PlainQp qp;
  uint32_t psn;  ///< where our packets start to count; random, so that old packets don't fit
};

}  // namespace examples
