// A program keeps the index of a GID: it must go on meaning the same address while that address is there.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "agent/device_builder.hpp"
#include "hosts.hpp"

namespace verbena::agent {
namespace {

using Gids = std::vector<std::string>;

// A host whose eth0 has these addresses, before lo; built anew on what was there before, as the agent does.
class GidIndex : public testing::Test {
 protected:
  Gids with(const Gids& addresses) {
    const auto next =
        build_devices({{"a", {"eth0"}}}, {interface("eth0", 2, addresses)}, 0, table_ ? &*table_ : nullptr);
    table_ = next;
    return gids_of(next.devices[0].ports[0]);
  }
  std::optional<arena::DeviceTable> table_;
};

std::string numbered(unsigned i) {
  return "10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250 + 1);
}

Gids many(unsigned first, unsigned count) {
  Gids addresses;
  for (unsigned i = first; i < first + count; ++i) addresses.push_back(numbered(i));
  return addresses;
}

TEST_F(GidIndex, OfANewAddressIsBehindAllOthersHoweverGoodItIs) {
  EXPECT_EQ((Gids{"fe80::1"}), with({"fe80::1"}));
  EXPECT_EQ((Gids{"fe80::1", "10.0.0.1", "fd00::1"}), with({"10.0.0.1", "fe80::1", "fd00::1"}));
}

TEST_F(GidIndex, StaysWhenAnotherAddressGoes) {
  with({"10.0.0.1", "10.0.0.2", "10.0.0.3"});
  EXPECT_EQ((Gids{"-", "10.0.0.2", "10.0.0.3"}), with({"10.0.0.2", "10.0.0.3"}));
  EXPECT_EQ((Gids{"-", "-", "10.0.0.3"}), with({"10.0.0.3"}));
}

TEST_F(GidIndex, OfAnAddressThatComesBackIsTheOldOne) {
  with({"10.0.0.1", "10.0.0.2"});
  with({"10.0.0.2"});
  EXPECT_EQ((Gids{"-", "10.0.0.2", "10.0.0.3"}), with({"10.0.0.2", "10.0.0.3"}));
  EXPECT_EQ((Gids{"10.0.0.1", "10.0.0.2", "10.0.0.3"}), with({"10.0.0.3", "10.0.0.2", "10.0.0.1"}));
}

TEST_F(GidIndex, ALinkThatFlapsFindsAllItsAddressesAtTheirPlaces) {
  const auto before = with({"10.0.0.1", "10.0.0.2", "fe80::1"});
  EXPECT_EQ((Gids{}), with({}));
  EXPECT_EQ(before, with({"10.0.0.1", "10.0.0.2", "fe80::1"}));
}

TEST_F(GidIndex, TheSameAddressOnTwoInterfacesHasTwo) {
  const std::vector<net::Interface> host{interface("eth0", 2, {"fe80::1"}),
                                         interface("eth1", 3, {"fe80::1"})};
  const auto port = build_devices({{"a", {"*"}}}, host, 0, nullptr).devices[0].ports[0];
  EXPECT_EQ((Gids{"fe80::1", "fe80::1"}), gids_of(port));
  EXPECT_EQ(2u, port.gids[0].ifindex);
  EXPECT_EQ(3u, port.gids[1].ifindex);
}

TEST_F(GidIndex, AFullTableHasTheBestRanked) {
  auto addresses = many(0, 63);
  addresses.insert(addresses.begin(), {"fe80::1", "fd00::1"});
  auto expected = many(0, 63);
  expected.push_back("fd00::1");
  EXPECT_EQ(expected, with(addresses));
}

TEST_F(GidIndex, AFullTableGivesTheFirstPlaceThatBecomesFree) {
  with(many(0, 64));
  EXPECT_EQ(many(0, 64), with(many(0, 65)));
  auto addresses = many(0, 65);
  addresses.erase(addresses.begin() + 10);
  auto expected = many(0, 64);
  expected[10] = numbered(64);
  EXPECT_EQ(expected, with(addresses));
}

TEST_F(GidIndex, ManyThatCameAndWentLeaveRoomForTheNext) {
  for (unsigned i = 0; i < 200; ++i) {
    const auto gids = with(many(i, 1));
    EXPECT_EQ(1u, static_cast<unsigned>(gids.size() - std::ranges::count(gids, "-"))) << i;
  }
}

// With at most 64 different addresses in all, an index means one address for good.
TEST_F(GidIndex, NeverMovesWhileAddressesComeAndGo) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    table_.reset();
    std::map<std::string, size_t> place_of;
    for (int step = 0; step < 40; ++step) {
      Gids present;
      for (const auto& address : many(0, 60))
        if (random() % 3 == 0) present.push_back(address);
      std::ranges::shuffle(present, random);
      const auto gids = with(present);
      ASSERT_EQ(present.size(), gids.size() - static_cast<size_t>(std::ranges::count(gids, "-")));
      for (size_t i = 0; i < gids.size(); ++i) {
        if (gids[i] == "-") continue;
        const auto [known, fresh] = place_of.emplace(gids[i], i);
        ASSERT_EQ(known->second, i) << gids[i] << " moved: seed " << seed << ", step " << step;
      }
    }
  }
}

// With more, a place is used again, but never while its address is there.
TEST_F(GidIndex, NeverMovesWhileItsAddressStaysThoughTheTableOverflows) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    table_.reset();
    Gids last;
    for (int step = 0; step < 60; ++step) {
      Gids present;
      for (const auto& address : many(0, 150))
        if (random() % 3 == 0) present.push_back(address);
      const auto gids = with(present);
      const std::set<std::string> here(present.begin(), present.end());
      for (size_t i = 0; i < std::min(last.size(), gids.size()); ++i)
        ASSERT_TRUE(!here.contains(last[i]) || last[i] == gids[i])
            << last[i] << ": seed " << seed << ", step " << step;
      ASSERT_EQ(std::min<size_t>(64, present.size()),
                gids.size() - static_cast<size_t>(std::ranges::count(gids, "-")));
      last = gids;
    }
  }
}

}  // namespace
}  // namespace verbena::agent
