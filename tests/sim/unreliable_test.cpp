// Some thousand random runs of UC connections and UD queue pairs. A seed that fails here fails again alone.
#include <gtest/gtest.h>

#include "run_time.hpp"
#include "sim/unreliable.hpp"

namespace verbena::sim {
namespace {

TEST(Unreliable, WholeMessagesInOrderOrNothingAndNothingLostWithoutACause) {
  uint64_t sent = 0;
  uint64_t arrived = 0;
  unsigned calm = 0;
  const uint64_t count = kSanitized ? 300 : 2000;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const auto outcome = run_unreliable_seed(seed);
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed;
    sent += outcome.sent;
    arrived += outcome.arrived;
    calm += outcome.excuses == 0 && outcome.sent > 0;
  }
  // The runs are what they should be: most messages arrive, many are lost, and in some runs none may be.
  EXPECT_GT(arrived, sent / 2);
  EXPECT_LT(arrived, sent - sent / 100);
  EXPECT_GT(calm, count / 50);
}

TEST(Unreliable, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto once = run_unreliable_seed(seed);
    const auto again = run_unreliable_seed(seed, {.trace_lines = 10});
    EXPECT_EQ(once.digest, again.digest);
    EXPECT_EQ(once.events, again.events);
  }
}

}  // namespace
}  // namespace verbena::sim
