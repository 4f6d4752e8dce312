// One packet of every kind that there is, each in a state of the queue pair in which it is welcome, if it
// ever is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "port_rig.hpp"

namespace verbena::test {

struct PacketKind {
  std::string name;
  roce::Service service;
  roce::Packet packet;
  std::function<void(PortRig&, Way)> before;  // brings the queue pair into that state
  wire::Drop when_right = wire::Drop::kNone;  // other than that: of no use to anybody, even so
};

// What a congested network has a receiver send (annex A17.9).
[[nodiscard]] roce::Packet congestion_notification();

[[nodiscard]] std::vector<PacketKind> packet_kinds();
[[nodiscard]] const PacketKind& packet_kind(const std::string& name);

}  // namespace verbena::test
