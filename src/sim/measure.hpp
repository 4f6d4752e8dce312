// How much passes: streams of equal requests between several hosts and one, to which all the data goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.hpp"
#include "sim/network.hpp"

namespace verbena::sim {

struct StreamConfig {
  engine::Request::Kind kind = engine::Request::Kind::kWrite;
  uint32_t senders = 1;  // hosts that the data comes from
  uint32_t connections = 1;
  size_t requests = 64;  // of each connection
  uint64_t request_bytes = 1 << 20;
  uint32_t mtu = 4096;
  uint32_t capacity = 16;
  size_t inbox_bytes = 4 << 20;
  NetworkConfig network;
  uint64_t seed = 1;
};

struct StreamResult {
  std::string wrong;
  double gigabits_per_second = 0;      // of all, payload only, until the last one has finished
  std::vector<double> of_connections;  // each until it has finished itself
  uint64_t datagrams = 0;
  uint64_t retransmitted = 0;
  uint64_t timeouts = 0;
};

[[nodiscard]] StreamResult measure_stream(const StreamConfig& config);

}  // namespace verbena::sim
