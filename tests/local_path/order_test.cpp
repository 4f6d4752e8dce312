// Everything before the last byte (FACTS 4), and nothing after the completion.
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "local_path/order_race.hpp"
#include "local_path/reuse_race.hpp"
#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

struct Counts {
  uint64_t rounds = 0;
  uint64_t violations = 0;
  uint64_t failures = 0;
};

Counts parse(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  Counts counts;
  words >> what >> counts.rounds >> counts.violations >> counts.failures;
  EXPECT_TRUE(what == "raced" || what == "reused") << line;
  return counts;
}

// Around a cache line, a page, what the path copies at once, and what compilers and kernels copy differently.
constexpr size_t kSizes[] = {64, 65, 100, 200, 512, 1024, 1500, 2048, 4096, 8192};
constexpr uint64_t kRounds = 25'000 / SLOWDOWN;  // of each size, which take a tenth of a second or two
constexpr int64_t kLimitMs = 1'000;              // where the cores are busy with something else

class Order : public testing::TestWithParam<const char*> {};

TEST_P(Order, WritesEndWithTheirLastByte) {
  Couple couple({.bytes = 65536, .kind = GetParam()});
  uint64_t rounds = 0;
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    const size_t offset = size % 3;  // ends on, before and behind whole words
    const std::string what = std::to_string(offset) + " " + std::to_string(size) + " " +
                             std::to_string(kRounds) + " " + std::to_string(kLimitMs);
    couple.target.tell("fill m 0 65536 0");
    couple.target.say("watch m " + what);
    const Counts written = parse(couple.requester.ask("race write q c m " + what + " " + couple.there.at(0)));
    const Counts seen = parse(couple.target.hear());
    EXPECT_EQ(written.failures, 0u);
    EXPECT_EQ(seen.violations, 0u) << "of " << seen.rounds;
    rounds += seen.rounds;
  }
  std::cout << rounds << " rounds\n";
  EXPECT_GE(rounds, std::size(kSizes) * kRounds / 100) << "too slow to find anything";
}

TEST_P(Order, ReadsEndWithTheirLastByte) {
  Couple couple({.bytes = 131072, .kind = GetParam()});
  for (size_t page = 0; page < kReadPages; ++page)
    couple.target.tell("fill m " + std::to_string(page * kReadPage) + " " + std::to_string(kReadPage) + " " +
                       std::to_string(page + 1));
  uint64_t rounds = 0;
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    couple.requester.tell("fill m 0 131072 0");
    const Counts read = parse(couple.requester.ask(
        "race read q c m " + std::to_string(size % 3) + " " + std::to_string(size) + " " +
        std::to_string(kRounds) + " " + std::to_string(kLimitMs) + " " + couple.there.at(0)));
    EXPECT_EQ(read.failures, 0u);
    EXPECT_EQ(read.violations, 0u) << "of " << read.rounds;
    rounds += read.rounds;
  }
  std::cout << rounds << " rounds\n";
  EXPECT_GE(rounds, std::size(kSizes) * kRounds / 100) << "too slow to find anything";
}

TEST_P(Order, NothingLandsAfterTheCompletion) {
  Couple couple({.bytes = kReuseMemory, .kind = GetParam()});
  couple.target.say("reuse receive q c m " + std::to_string(1'500 * kLonger));
  const Counts sent = parse(
      couple.requester.ask("reuse send q c m " + std::to_string(1'300 * kLonger) + " " + couple.there.at(0)));
  const Counts received = parse(couple.target.hear());
  EXPECT_EQ(sent.failures + received.failures, 0u);
  EXPECT_EQ(received.violations, 0u) << "of " << received.rounds;
  EXPECT_GT(received.rounds, 100u / SLOWDOWN);
}

INSTANTIATE_TEST_SUITE_P(Memory, Order, testing::Values("heap", "shared"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace verbena::local_path
