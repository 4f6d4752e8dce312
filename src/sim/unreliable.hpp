// Runs of the unreliable services: hosts with UC connections and UD queue pairs in a network in which
// anything can happen.
#pragma once

#include <cstdint>

#include "sim/run.hpp"

namespace verbena::sim {

struct UnreliableOutcome : Outcome {
  uint64_t sent = 0;     // messages
  uint64_t arrived = 0;  // of them, at least once
  uint64_t excuses = 0;  // what happened that can lose a message
};

[[nodiscard]] UnreliableOutcome run_unreliable_seed(uint64_t seed, const RunLimits& limits = {});

}  // namespace verbena::sim
