// 64 connections of 8 hosts into one receiver, whose socket buffer holds as much as a stock machine's: less
// than one packet of each. All must finish, and nobody at the others' expense.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "run_time.hpp"
#include "sim/measure.hpp"

namespace verbena::sim {
namespace {

class Incast : public ::testing::TestWithParam<engine::Request::Kind> {};

TEST_P(Incast, AllFinishAndShare) {
  StreamConfig config{.kind = GetParam(),
                      .senders = 8,
                      .connections = 64,
                      .requests = kSanitized ? 8u : 32u,
                      .request_bytes = 64 << 10,
                      .inbox_bytes = 212'992};
  config.network.receive_queue_bytes = 212'992;
  config.network.impairment.delay = std::chrono::microseconds(10);
  const auto result = measure_stream(config);
  ASSERT_EQ(result.wrong, "");
  ASSERT_EQ(result.of_connections.size(), 64u);
  const double mean = std::accumulate(result.of_connections.begin(), result.of_connections.end(), 0.0) / 64;
  const double slowest = *std::ranges::min_element(result.of_connections);
  std::cout << "all " << result.gigabits_per_second << " Gb/s of 10; each " << mean
            << " on average, the slowest " << slowest << "; " << result.timeouts << " timeouts, "
            << result.retransmitted << " of " << result.datagrams << " datagrams were sent again\n";
  if (kSanitized) return;  // too short a run to speak of shares
  EXPECT_GE(slowest, mean / 4);
  EXPECT_GE(result.gigabits_per_second, 4.0);
}

INSTANTIATE_TEST_SUITE_P(Of, Incast,
                         ::testing::Values(engine::Request::Kind::kWrite, engine::Request::Kind::kSend,
                                           engine::Request::Kind::kRead),
                         [](const auto& test) {
                           using enum engine::Request::Kind;
                           return test.param == kWrite ? "Write" : test.param == kSend ? "Send" : "Read";
                         });

// The slowest line on the way is what counts, whoever's it is.
TEST(Lines, MayBeAHostsOwn) {
  const auto gigabits = [](std::vector<uint64_t> bits_per_second) {
    StreamConfig config{.kind = engine::Request::Kind::kWrite, .requests = 32, .request_bytes = 64 << 10};
    for (const uint64_t bits : bits_per_second) {
      LineConfig line;
      line.bits_per_second = bits;
      config.network.own_lines.push_back(line);
    }
    const auto result = measure_stream(config);
    EXPECT_EQ(result.wrong, "");
    return result.gigabits_per_second;
  };
  constexpr uint64_t kFast = 10'000'000'000;
  constexpr uint64_t kSlow = 1'000'000'000;
  EXPECT_GT(gigabits({}), 3.0);
  EXPECT_GT(gigabits({kFast, kFast}), 3.0);
  EXPECT_LT(gigabits({kSlow, kFast}), 1.0);
  EXPECT_LT(gigabits({kFast, kSlow}), 1.0);
}

}  // namespace
}  // namespace verbena::sim
