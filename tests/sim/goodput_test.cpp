// What passes on a line of 10 Gb/s and 100 us round trip that loses packets, against the committed table
// goodput.tsv. A change that makes it better rewrites the table: SIM_WRITE_TABLE=1 build/tests/sim/sim_test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "run_time.hpp"
#include "sim/measure.hpp"

namespace verbena::sim {
namespace {

using Kind = engine::Request::Kind;
constexpr double kLossPercents[] = {0, 0.1, 0.5, 1, 2, 5};
constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::kWrite, "WRITE"}, {Kind::kSend, "SEND"}, {Kind::kRead, "READ"}};
constexpr uint64_t kSeeds = 4;

double goodput(Kind kind, double loss_percent) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    StreamConfig config{.kind = kind, .requests = 64, .request_bytes = 256 << 10, .seed = seed};
    config.network.receive_queue_bytes = 4 << 20;
    config.network.impairment.delay = std::chrono::microseconds(50);
    config.network.impairment.lost = static_cast<uint32_t>(loss_percent * 10'000);
    const auto result = measure_stream(config);
    EXPECT_EQ(result.wrong, "");
    sum += result.gigabits_per_second;
  }
  return sum / kSeeds;
}

TEST(Goodput, IsNotWorseThanInTheTable) {
  if (kSanitized) GTEST_SKIP() << "the same packets as in the release build, only slower";
  std::ifstream table(SIM_GOODPUT_TABLE);
  std::string head;
  std::getline(table, head);
  std::string fresh = "loss %\tWRITE\tSEND\tREAD\n";
  for (const double percent : kLossPercents) {
    double loss = -1;
    table >> loss;
    fresh += fmt::format("{}", percent);
    for (const auto& [kind, name] : kKinds) {
      double before = 0;
      table >> before;
      const double now = goodput(kind, percent);
      EXPECT_GE(now, 0.9 * before) << name << " in Gb/s at a loss of " << percent << " %";
      fresh += fmt::format("\t{:.2f}", now);
    }
    EXPECT_EQ(loss, percent) << "the table's rows are others";
    fresh += "\n";
  }
  if (std::getenv("SIM_WRITE_TABLE") != nullptr) std::ofstream(SIM_GOODPUT_TABLE) << fresh;
  std::cout << fresh;
}

}  // namespace
}  // namespace verbena::sim
