// Some thousand random scenarios. One that fails is run again, alone, by `verbena sim --from SEED --seeds 1`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/run.hpp"

namespace verbena::sim {
namespace {

TEST(Seeds, AllIsWell) {
  const char* wanted = std::getenv("SIM_SEEDS");
  const uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 0) : 2000;
  const char* first = std::getenv("SIM_FROM");
  const uint64_t from = first != nullptr ? std::strtoull(first, nullptr, 0) : 1;
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    const auto outcome = run_seed(seed);
    ASSERT_EQ(outcome.wrong, "") << to_line(draw_scenario(seed));
  }
}

}  // namespace
}  // namespace verbena::sim
