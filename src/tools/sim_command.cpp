// `verbena sim`: the engine in a network in which anything can happen, seed after seed.
#include <fmt/format.h>

#include "sim/run.hpp"
#include "tools/commands.hpp"

namespace verbena::tools {
namespace {

constexpr size_t kTraceLines = 400;

void explain(uint64_t seed, const sim::Outcome& outcome, size_t lines) {
  fmt::print("{}\n", sim::to_line(sim::draw_scenario(seed)));
  for (const auto& line : sim::run_seed(seed, {.trace_lines = lines}).trace) fmt::print("{}\n", line);
  fmt::print("seed {}: {}\n", seed, outcome.wrong.empty() ? "all is well" : outcome.wrong);
}

}  // namespace

int simulate(const SimOptions& options) {
  uint64_t events = 0;
  uint64_t digest = 0;
  for (uint64_t seed = options.from; seed != options.from + options.seeds; ++seed) {
    const auto outcome = sim::run_seed(seed);
    events += outcome.events;
    digest = digest * 31 + outcome.digest;
    if (options.trace || !outcome.wrong.empty())
      explain(seed, outcome, options.trace ? SIZE_MAX : kTraceLines);
    if (!outcome.wrong.empty()) {
      fmt::print("again: verbena sim --from {} --seeds 1\n", seed);
      return 1;
    }
  }
  fmt::print("{} seeds from {}: all is well; {} events, digest {:016x}\n", options.seeds, options.from,
             events, digest);
  return 0;
}

}  // namespace verbena::tools
