// A scenario from its beginning to its end, and what the oracle says of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/scenario.hpp"

namespace verbena::sim {

struct Outcome {
  std::string wrong;  // empty: all is well
  uint64_t digest = 0;
  uint64_t events = 0;
  uint64_t datagrams = 0;
  base::Duration took{};  // of virtual time, until the last request ended
  std::vector<std::string> trace;
};

struct RunLimits {
  base::Duration longest = base::seconds(600);
  uint64_t events = 10'000'000;
  size_t trace_lines = 0;
};

// Everything in it, for tests that look further than an outcome.
class World {
 public:
  explicit World(const Scenario& scenario, size_t trace_lines = 0);

  // Until nothing more happens, or a limit.
  void run(const RunLimits& limits);
  [[nodiscard]] const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] const Journal& journal() const { return journal_; }
  [[nodiscard]] const EventQueue& events() const { return events_; }
  [[nodiscard]] Oracle& oracle() { return oracle_; }

 private:
  void befall(const Mishap& mishap);
  [[nodiscard]] bool finished() const;

  EventQueue events_;
  Journal journal_;
  Oracle oracle_;
  Random random_;
  Network network_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

[[nodiscard]] Outcome run_scenario(const Scenario& scenario, const RunLimits& limits = {});
// The scenario that the seed gives, and then the run of the unreliable services that it gives
// (unreliable.hpp).
[[nodiscard]] Outcome run_seed(uint64_t seed, const RunLimits& limits = {});

}  // namespace verbena::sim
