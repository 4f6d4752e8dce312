// A message of an unreliable service: what is sent, and what came of it.
#pragma once

#include <cstdint>

#include "engine/ud.hpp"

namespace verbena::sim {

struct Letter {
  engine::DatagramRequest datagram;                              // of a connection only the request counts
  uint64_t pattern = 0;                                          // of its bytes
  engine::RequestStatus ends = engine::RequestStatus::kSuccess;  // how it must end at its sender
  bool unwanted = false;  // must not arrive: wrong Q_Key, or its sender can't send all of it
  unsigned arrived = 0;   // how often
  uint64_t place = 0;     // of a WRITE: its own part of the peer's region
};

// Why messages may be missing: each is good for one.
struct Causes {
  uint64_t not_ready = 0;  // no receive
  uint64_t no_room = 0;
  uint64_t too_long = 0;  // for the receive

  void count(engine::DropReason reason) {
    not_ready += reason == engine::DropReason::kNotReady;
    no_room += reason == engine::DropReason::kNoRoom;
    too_long += reason == engine::DropReason::kTooLong;
  }
  [[nodiscard]] uint64_t all() const { return not_ready + no_room + too_long; }
};

}  // namespace verbena::sim
