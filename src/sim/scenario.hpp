// A run as data: hosts, connections, network, and what befalls them. Drawn from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/endpoint.hpp"
#include "sim/host.hpp"
#include "sim/network.hpp"
#include "sim/plan.hpp"

namespace verbena::sim {

struct ConnectionPlan {
  HostId hosts[2] = {};
  EndpointConfig ends[2];
  PlanConfig plans[2];  // what each asks of the other
};

struct Mishap {
  enum class Kind : uint8_t { kPart, kCrash, kStop } kind = Kind::kPart;
  base::Duration after{};
  base::Duration lasts{};
  HostId host = 0;
  HostId other = 0;      // of a parting
  bool excuses = false;  // so long that requesters may give up
};

struct Scenario {
  uint64_t seed = 0;
  NetworkConfig network;
  HostConfig host;
  uint32_t hosts = 2;
  std::vector<ConnectionPlan> connections;
  std::vector<Mishap> mishaps;
};

[[nodiscard]] NetworkConfig draw_network(Random& random);
[[nodiscard]] Scenario draw_scenario(uint64_t seed);
// In one line, for people.
[[nodiscard]] std::string to_line(const Scenario& scenario);

}  // namespace verbena::sim
