// Some thousand random scenarios. One that fails is run again, alone, by `verbena sim --from SEED --seeds 1`.
#include <gtest/gtest.h>

#include <set>

#include "run_time.hpp"
#include "sim/run.hpp"

namespace verbena::sim {
namespace {

// In parts, so that ctest runs them side by side.
class Seeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Seeds, AllIsWell) {
  const uint64_t count = kSanitized ? 400 : 1250;
  for (uint64_t seed = GetParam(); seed < GetParam() + count; ++seed) {
    const auto outcome = run_seed(seed);
    ASSERT_EQ(outcome.wrong, "") << to_line(draw_scenario(seed)) << "\nverbena sim --from " << seed
                                 << " --seeds 1";
  }
}

INSTANTIATE_TEST_SUITE_P(From, Seeds, ::testing::Values(1, 10'001, 20'001, 30'001));

TEST(Runs, TheSameSeedGivesTheSameRun) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto once = run_seed(seed);
    const auto again = run_seed(seed, {.trace_lines = 10});  // looking on changes nothing
    EXPECT_EQ(once.digest, again.digest);
    EXPECT_EQ(once.events, again.events);
    EXPECT_EQ(once.took, again.took);
    digests.insert(once.digest);
  }
  EXPECT_EQ(digests.size(), 20u);
}

// Packets with random bytes and an ICRC that fits. Nothing is promised to who sends them, but that nobody
// crashes; and it shows that the oracle has eyes.
TEST(Runs, ForgedPacketsCrashNobody) {
  unsigned noticed = 0;
  const uint64_t count = 300;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    Scenario scenario = draw_scenario(seed);
    scenario.network.impairment.forged = 50'000;
    noticed += run_scenario(scenario, {.events = 100'000}).wrong.empty() ? 0 : 1;
  }
  EXPECT_GT(noticed, count / 10);
}

}  // namespace
}  // namespace verbena::sim
