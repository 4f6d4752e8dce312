#include "arena/link_rate.hpp"

#include <gtest/gtest.h>

namespace verbena::arena {
namespace {

TEST(LinkRate, IsTheSlowestLinkThatCarriesTheSpeed) {
  const std::pair<uint32_t, uint32_t> cases[] = {{10, 2'500},        {1'000, 2'500},    {2'500, 2'500},
                                                 {2'501, 10'000},    {10'000, 10'000},  {25'000, 25'000},
                                                 {40'000, 40'000},   {56'000, 100'000}, {100'000, 100'000},
                                                 {200'000, 200'000}, {400'000, 400'000}};
  for (const auto& [claimed, carried] : cases) EXPECT_EQ(carried, link_rate(claimed).mbps) << claimed;
}

TEST(LinkRate, IsTheFastestThereIsBeyondAndAGuessForWhatClaimsNothing) {
  EXPECT_EQ(400'000u, link_rate(800'000).mbps);
  EXPECT_EQ(400'000u, link_rate(0xffffffff).mbps);
  EXPECT_EQ(100'000u, link_rate(0).mbps);
}

}  // namespace
}  // namespace verbena::arena
