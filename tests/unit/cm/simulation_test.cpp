// Every connect ends in exactly one way at both ends, nothing hangs, nothing is left, whatever the network
// does and whoever dies. A failing seed reproduces alone.
#include <gtest/gtest.h>

#include "simulated_world.hpp"

namespace verbena::cm {
namespace {

SimulatedWorld::Tally run_seeds(unsigned count, const Weather& weather) {
  SimulatedWorld::Tally sum;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    SimulatedWorld world(seed, weather);
    const std::string wrong = world.run();
    EXPECT_EQ(wrong, "") << "seed " << seed;
    if (!wrong.empty()) return sum;
    const auto& tally = world.tally();
    sum.connects += tally.connects;
    sum.established += tally.established;
    sum.rejected += tally.rejected;
    sum.unreachable += tally.unreachable;
    sum.disconnected += tally.disconnected;
    sum.deaths += tally.deaths;
  }
  return sum;
}

TEST(CmSimulation, FairWeather) {
  const auto sum = run_seeds(500, {.patience = 0.5});
  EXPECT_EQ(sum.unreachable, 0u);
  EXPECT_GT(sum.established, sum.connects / 3);
  EXPECT_GT(sum.rejected, 0u);
}

TEST(CmSimulation, LossDoublingAndReordering) {
  const auto sum = run_seeds(
      1'000, {.loss = 0.2, .doubling = 0.2, .datagrams = 0.2, .patience = 0.5, .longest_way_ms = 300});
  EXPECT_LT(sum.unreachable, sum.connects / 50) << "a fifth is lost, not all";
  EXPECT_GT(sum.established, sum.connects / 4);
}

TEST(CmSimulation, DeathAtAnyMoment) {
  const auto sum =
      run_seeds(1'000, {.loss = 0.1, .doubling = 0.1, .death = 0.2, .datagrams = 0.1, .patience = 0.5});
  EXPECT_GT(sum.deaths, 1'000u);
  EXPECT_GT(sum.disconnected, 0u);
}

TEST(CmSimulation, HeavyLoss) {
  const auto sum = run_seeds(500, {.loss = 0.7, .doubling = 0.1, .death = 0.05, .longest_way_ms = 200});
  EXPECT_GT(sum.unreachable, 0u);
  EXPECT_GT(sum.established, 0u);
}

TEST(CmSimulation, NothingGetsThrough) {
  const auto sum = run_seeds(100, {.loss = 1});
  EXPECT_GT(sum.unreachable, 0u);
  EXPECT_EQ(sum.established, 0u);
}

}  // namespace
}  // namespace verbena::cm
