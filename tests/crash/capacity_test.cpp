// 250 processes at once, and one more.
#include <gtest/gtest.h>

#include <set>

#include "base/numbers.hpp"
#include "fleet.hpp"

namespace verbena::crash {
namespace {

using Capacity = FreshHost;

TEST_F(Capacity, TwoHundredFiftyAtOnceAndOneMoreGetsItsSentence) {
  auto fleet = enlist_all(base::kMaxProcessSlots);
  std::set<unsigned> slots;
  for (auto& member : fleet) slots.insert(member.slot);
  EXPECT_EQ(slots.size(), base::kMaxProcessSlots);

  auto one_more = support::Process::start({TEST_CLIENT});
  const auto line = one_more.hear();
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->starts_with("refused 12 no free slot: of the 250 processes")) << *line;

  // Each has its own packets, and the first to leave makes room.
  for (auto& member : fleet) ASSERT_TRUE(reached(member, "mine " + std::to_string(member.slot)));
  fleet.pop_back();
  EXPECT_TRUE(support::eventually([] { return slots_taken() == base::kMaxProcessSlots - 1; }));
  one_more.say("open");
  const auto again = one_more.hear();
  EXPECT_TRUE(again && again->starts_with("slot ")) << again.value_or("nothing");

  fleet.clear();
  EXPECT_TRUE(support::eventually([] { return slots_taken() == 1u; }));
}

TEST_F(Capacity, TwoHundredFiftySurviveTheAgent) {
  auto fleet = enlist_all(base::kMaxProcessSlots);
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  kill_agent();
  ASSERT_TRUE(next_agent(*agent));
  for (auto& member : fleet) ASSERT_TRUE(reached(member, "after")) << member.slot;
  EXPECT_EQ(slots_taken(), base::kMaxProcessSlots);
}

TEST_F(Capacity, ComingAndGoingLeavesNothingBehind) {
  Member anchor = enlist();
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  const int before = support::descriptor_count(*agent);
  for (int i = 0; i < 300; ++i) {
    auto visitor = support::Process::start({TEST_CLIENT});
    const auto line = visitor.hear();
    ASSERT_TRUE(line && line->starts_with("slot ")) << i << ": " << line.value_or("nothing");
  }
  EXPECT_TRUE(support::eventually([&] { return slots_taken() == 1u; }));
  EXPECT_TRUE(support::eventually([&] { return support::descriptor_count(*agent) <= before; }))
      << support::descriptor_count(*agent) << " descriptors now, " << before << " before";
  EXPECT_EQ(support::agent_pid(), agent);
}

}  // namespace
}  // namespace verbena::crash
