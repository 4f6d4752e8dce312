#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "arena/registry.hpp"

namespace verbena::arena {
namespace {

// The lines that a tool shows, oldest first.
std::vector<std::string> lines_of(const Registry& registry) {
  std::vector<std::string> lines;
  const uint64_t last = registry.layout().log_next.load();
  for (uint64_t number = last < kLogLines ? 1 : last - kLogLines + 1; number <= last; ++number) {
    const LogLine& line = registry.layout().log[number % kLogLines];
    EXPECT_EQ(number, line.number.load());
    EXPECT_EQ(static_cast<int64_t>(number * 10), line.at_ns);
    lines.emplace_back(text(line.text));
  }
  return lines;
}

void log_numbers(const Registry& registry, unsigned first, unsigned last) {
  for (unsigned i = first; i <= last; ++i) registry.log({i * 10}, "line " + std::to_string(i));
}

TEST(Log, ShowsAllLinesUntilTheRingIsFull) {
  const auto made = *Registry::create("test");
  EXPECT_TRUE(lines_of(made.second).empty());
  log_numbers(made.second, 1, kLogLines);
  const auto lines = lines_of(made.second);
  ASSERT_EQ(kLogLines, lines.size());
  EXPECT_EQ("line 1", lines.front());
  EXPECT_EQ("line 64", lines.back());
}

TEST(Log, KeepsTheLast64WhenItWraps) {
  const auto made = *Registry::create("test");
  log_numbers(made.second, 1, 3 * kLogLines + 5);
  const auto lines = lines_of(made.second);
  ASSERT_EQ(kLogLines, lines.size());
  for (unsigned i = 0; i < kLogLines; ++i)
    EXPECT_EQ("line " + std::to_string(2 * kLogLines + 6 + i), lines[i]);
}

TEST(Log, CutsALongSentenceAndClearsWhatALongerLineLeft) {
  const auto made = *Registry::create("test");
  made.second.log({10}, std::string(1000, 'x'));
  EXPECT_EQ(std::string(kLogText - 1, 'x'), lines_of(made.second).front());
  log_numbers(made.second, 2, kLogLines);
  log_numbers(made.second, kLogLines + 1, kLogLines + 1);  // takes the place of line 1
  EXPECT_EQ("line 65", lines_of(made.second).back());
}

TEST(Log, GoesOnWhereAnAgentThatDiedStopped) {
  const auto made = *Registry::create("test");
  log_numbers(made.second, 1, 3);
  // Killed between emptying line 4 and publishing it.
  made.second.layout().log[4].number.store(0);
  const Registry next = *Registry::open(made.first.get(), Access::kReadWrite);
  log_numbers(next, 4, 5);
  EXPECT_EQ((std::vector<std::string>{"line 1", "line 2", "line 3", "line 4", "line 5"}), lines_of(next));
}

}  // namespace
}  // namespace verbena::arena
