// One packet of every kind that there is, each in a state of the queue pair in which it is welcome.
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
};

[[nodiscard]] std::vector<PacketKind> packet_kinds();
[[nodiscard]] const PacketKind& packet_kind(const std::string& name);

}  // namespace verbena::test
