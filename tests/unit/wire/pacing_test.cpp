#include "wire/pacing.hpp"

#include <gtest/gtest.h>

namespace verbena::wire {
namespace {

net::Route way(uint8_t last, uint8_t slot = 1, bool recognised = true) {
  net::Route route{.slot = {slot}, .recognised = recognised};
  route.to.bytes[15] = last;
  return route;
}

constexpr base::Instant kStart{1'000'000'000};

// Sends until it may not; the numbers of the greetings that were due.
std::vector<uint64_t> fill(Pacing& pacing, const net::Route& route, base::Instant now, size_t bytes = 4096) {
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 10'000 && pacing.open(route, now); ++i)
    if (const auto number = pacing.sent(route, bytes, now)) numbers.push_back(*number);
  return numbers;
}

TEST(Pacing, ClosesWhenAnswersAreMissing) {
  Pacing pacing;
  EXPECT_EQ(fill(pacing, way(1), kStart).size(), 4u);
  EXPECT_FALSE(pacing.open(way(1), kStart));
  EXPECT_TRUE(pacing.open(way(2), kStart)) << "another host";
  EXPECT_TRUE(pacing.open(way(1, 2), kStart)) << "another process";
}

TEST(Pacing, AnAnswerOpensAndTellsWhoWaits) {
  Pacing pacing;
  const auto numbers = fill(pacing, way(1), kStart);
  pacing.wait(way(1), 7);
  pacing.wait(way(1), 9);
  pacing.wait(way(1), 7);
  EXPECT_EQ(pacing.answered(numbers[0]), (std::vector<uint16_t>{7, 9}));
  EXPECT_TRUE(pacing.open(way(1), kStart));
  EXPECT_EQ(fill(pacing, way(1), kStart).size(), 1u);
}

TEST(Pacing, ALaterAnswerStandsForEarlierOnes) {
  Pacing pacing;
  const auto numbers = fill(pacing, way(1), kStart);
  (void)pacing.answered(numbers[2]);
  EXPECT_EQ(fill(pacing, way(1), kStart).size(), 3u);
  // One that was overtaken changes nothing.
  (void)pacing.answered(numbers[0]);
  EXPECT_FALSE(pacing.open(way(1), kStart));
}

TEST(Pacing, WithoutAnswersItWaitsAMomentOnly) {
  Pacing pacing;
  (void)fill(pacing, way(1), kStart);
  const base::Instant again = pacing.opens_at(way(1));
  EXPECT_GT(again, kStart);
  EXPECT_LE(again - kStart, base::milliseconds(10));
  EXPECT_FALSE(pacing.open(way(1), base::Instant{again.ns - 1}));
  EXPECT_TRUE(pacing.open(way(1), again));
}

TEST(Pacing, AnswersNobodyAskedForChangeNothing) {
  Pacing pacing;
  const auto numbers = fill(pacing, way(1), kStart);
  for (const uint64_t lie : {numbers[3] + 1, numbers[3] + 1000, uint64_t{5} << 32, ~uint64_t{0}}) {
    EXPECT_TRUE(pacing.answered(lie).empty());
    EXPECT_FALSE(pacing.open(way(1), kStart)) << lie;
  }
}

TEST(Pacing, ShortPacketsCountForWhatTheyCostTheSocket) {
  Pacing pacing;
  EXPECT_EQ(fill(pacing, way(1), kStart, 64).size(), 4u);
}

TEST(Pacing, StrangersAreNotPaced) {
  Pacing pacing;
  EXPECT_TRUE(fill(pacing, way(1, 1, false), kStart).empty());
  EXPECT_TRUE(pacing.open(way(1, 1, false), kStart));
}

}  // namespace
}  // namespace verbena::wire
