#include "wire/acquaintances.hpp"

#include <gtest/gtest.h>

namespace verbena::wire {
namespace {

using Word = Acquaintances::Word;

net::Route way(uint16_t host, uint8_t from = 1) {
  net::Route route{.slot = {9}};
  route.from.bytes[15] = from;
  route.to.bytes[14] = static_cast<uint8_t>(host >> 8);
  route.to.bytes[15] = static_cast<uint8_t>(host);
  return route;
}

constexpr base::Instant kStart{1'000'000'000};

TEST(Acquaintances, AHostIsAskedOnceAndKnownByItsAnswer) {
  Acquaintances hosts;
  EXPECT_EQ(hosts.next_due(), base::Instant{INT64_MAX});
  EXPECT_EQ(hosts.look_up(way(2)), Word::kAsked);
  EXPECT_EQ(hosts.look_up(way(2)), Word::kAsked);
  EXPECT_LE(hosts.next_due(), kStart);
  const auto greetings = hosts.due(kStart);
  ASSERT_EQ(greetings.size(), 1u);
  EXPECT_EQ(greetings[0].route.to, way(2).to);
  EXPECT_EQ(greetings[0].route.slot, base::kAgentSlot);
  EXPECT_FALSE(hosts.recognise(way(2).to, greetings[0].transaction + 1)) << "forged";
  EXPECT_FALSE(hosts.is_verbena(way(2).to));
  EXPECT_TRUE(hosts.recognise(way(2).to, greetings[0].transaction));
  EXPECT_FALSE(hosts.recognise(way(2).to, greetings[0].transaction));
  EXPECT_TRUE(hosts.is_verbena(way(2).to));
  EXPECT_EQ(hosts.look_up(way(2)), Word::kVerbena);
  EXPECT_EQ(hosts.look_up(way(2, 5)), Word::kVerbena) << "from another address of ours";
  EXPECT_TRUE(hosts.due(kStart + base::seconds(9)).empty());
}

TEST(Acquaintances, WhoNeverAnswersIsLeftAlone) {
  Acquaintances hosts;
  (void)hosts.look_up(way(2));
  size_t asked = 0;
  for (base::Instant now = kStart; hosts.next_due() != base::Instant{INT64_MAX}; now = hosts.next_due())
    asked += hosts.due(now).size();
  EXPECT_EQ(asked, 6u);
  EXPECT_EQ(hosts.look_up(way(2)), Word::kAsked);
  EXPECT_TRUE(hosts.due(kStart + base::seconds(99)).empty());
}

TEST(Acquaintances, AnAnswerNobodyAskedForMakesNoAcquaintance) {
  Acquaintances hosts;
  EXPECT_FALSE(hosts.recognise(way(3).to, 0));
  EXPECT_EQ(hosts.look_up(way(3)), Word::kAsked);
  EXPECT_FALSE(hosts.recognise(way(3).to, 0)) << "before it was sent";
}

TEST(Acquaintances, AFloodOfStrangersHasAnEnd) {
  Acquaintances hosts;
  for (uint16_t host = 0; host < 5000; ++host) EXPECT_EQ(hosts.look_up(way(host)), Word::kAsked);
  EXPECT_EQ(hosts.due(kStart).size(), 1024u);
  // Those who never answered make room for others.
  for (base::Instant now = kStart; hosts.next_due() != base::Instant{INT64_MAX}; now = hosts.next_due())
    (void)hosts.due(now);
  (void)hosts.look_up(way(9999));
  const auto greetings = hosts.due(kStart + base::seconds(60));
  ASSERT_EQ(greetings.size(), 1u);
  EXPECT_TRUE(hosts.recognise(way(9999).to, greetings[0].transaction));
}

}  // namespace
}  // namespace verbena::wire
