#include "cm/ports.hpp"

#include <gtest/gtest.h>

#include <set>

#include "addresses.hpp"

namespace verbena::cm {
namespace {

using ipc::CmPortSpace;

class PortsTest : public testing::Test {
 protected:
  // The taking, or 0 where it is in use.
  Taking take(const std::string& where, uint16_t port, bool reuse = false, bool family_only = false) {
    const auto taken = ports_.take({.space = CmPortSpace::kTcp,
                                    .address = address(where, port),
                                    .reuse = reuse,
                                    .family_only = family_only},
                                   random_++);
    EXPECT_TRUE(taken || taken.error().code == EADDRINUSE);
    return taken ? taken->taking : 0;
  }
  Ports ports_{{.first = 40'000, .last = 40'009}};
  uint64_t random_ = 7;
};

TEST_F(PortsTest, OneAddressOnce) {
  const Taking first = take("10.0.0.1", 80);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(take("10.0.0.1", 80), 0u);
  EXPECT_NE(take("10.0.0.2", 80), 0u);
  EXPECT_NE(take("10.0.0.1", 81), 0u);
  ports_.release(first);
  EXPECT_NE(take("10.0.0.1", 80), 0u);
}

TEST_F(PortsTest, SpacesDoNotKnowEachOther) {
  EXPECT_NE(take("10.0.0.1", 80), 0u);
  EXPECT_TRUE(ports_.take({.space = CmPortSpace::kUdp, .address = address("10.0.0.1", 80)}, 0));
}

TEST_F(PortsTest, WildcardTakesAll) {
  EXPECT_NE(take("0.0.0.0", 80), 0u);
  EXPECT_EQ(take("10.0.0.1", 80), 0u);
  EXPECT_EQ(take("0.0.0.0", 80), 0u);
  EXPECT_NE(take("fd00::1", 80), 0u) << "IPv4's has nothing of IPv6";
  EXPECT_EQ(take("::", 80), 0u) << "IPv6's takes IPv4, too";
  EXPECT_NE(take("10.0.0.1", 81), 0u);
  EXPECT_EQ(take("0.0.0.0", 81), 0u);
}

TEST_F(PortsTest, FamilyOnly) {
  EXPECT_NE(take("::", 80, false, true), 0u);
  EXPECT_NE(take("0.0.0.0", 80), 0u);
  EXPECT_EQ(take("fd00::1", 80), 0u);
  EXPECT_NE(take("::", 81), 0u);
  EXPECT_EQ(take("10.0.0.1", 81), 0u);
}

TEST_F(PortsTest, ReuseIfBothSaySoUntilOneListens) {
  const Taking first = take("10.0.0.1", 80, true);
  EXPECT_EQ(take("10.0.0.1", 80), 0u);
  const Taking second = take("10.0.0.1", 80, true);
  EXPECT_NE(second, 0u);
  EXPECT_TRUE(ports_.listen(first));
  const auto other = ports_.listen(second);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, EADDRINUSE);
  EXPECT_EQ(take("10.0.0.1", 80, true), 0u);
}

TEST_F(PortsTest, EphemeralOnesAreFreeUntilNoneIs) {
  std::set<uint16_t> seen;
  for (int i = 0; i < 10; ++i) {
    const auto taken = ports_.take({.space = CmPortSpace::kTcp, .address = address("10.0.0.1")}, 12345);
    ASSERT_TRUE(taken);
    EXPECT_TRUE(taken->port >= 40'000 && taken->port <= 40'009);
    EXPECT_TRUE(seen.insert(taken->port).second);
  }
  EXPECT_EQ(take("10.0.0.2", 0), 0u);
}

TEST_F(PortsTest, ListenerOfTheVeryAddressComesFirst) {
  const Taking any6 = take("::", 80, true);
  const Taking own = take("10.0.0.1", 80, true);
  const auto who = [&](const std::string& where) {
    return ports_.listener(CmPortSpace::kTcp, address(where, 80));
  };
  EXPECT_EQ(who("10.0.0.1"), 0u);
  EXPECT_TRUE(ports_.listen(any6));
  EXPECT_EQ(who("10.0.0.1"), any6);
  EXPECT_EQ(who("fd00::1"), any6);
  EXPECT_FALSE(ports_.listen(own)) << "it is listened for already";
  ports_.release(any6);
  EXPECT_TRUE(ports_.listen(own));
  EXPECT_EQ(who("10.0.0.1"), own);
  EXPECT_EQ(who("10.0.0.2"), 0u);
  EXPECT_EQ(ports_.listener(CmPortSpace::kUdp, address("10.0.0.1", 80)), 0u);
}

TEST_F(PortsTest, LinkLocalAddressesAreAnInterfaces) {
  auto one = address("fe80::1", 80);
  one.interface = 2;
  auto two = one;
  two.interface = 3;
  const auto first = ports_.take({.space = CmPortSpace::kTcp, .address = one}, 0);
  const auto second = ports_.take({.space = CmPortSpace::kTcp, .address = two}, 0);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(ports_.listen(first->taking));
  EXPECT_EQ(ports_.listener(CmPortSpace::kTcp, one), first->taking);
  EXPECT_EQ(ports_.listener(CmPortSpace::kTcp, two), 0u);
}

TEST_F(PortsTest, LeavesNothing) {
  const Taking taking = take("10.0.0.1", 80);
  EXPECT_EQ(ports_.size(), 1u);
  ports_.release(taking);
  ports_.release(taking);
  EXPECT_EQ(ports_.size(), 0u);
}

}  // namespace
}  // namespace verbena::cm
