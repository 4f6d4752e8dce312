#include "net/interfaces.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <optional>

#include "support/isolated.hpp"
#include "support/process.hpp"
#include "wire.hpp"

namespace verbena::net {
namespace {

using support::ip;

std::optional<Interface> find(const std::string& name) {
  const auto all = *list_interfaces();
  for (const auto& interface : all)
    if (interface.name == name) return interface;
  return std::nullopt;
}

bool has(const Interface& interface, const Address& address) {
  return std::ranges::find(interface.addresses, address) != interface.addresses.end();
}

bool readable(int fd, int wait_ms = 2'000) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, wait_ms) == 1;
}

// Without root the namespace is ours but `ip`, being another program, has no capability in it.
#define NEEDS_IP \
  if (!ip("link set lo up 2>/dev/null")) GTEST_SKIP() << "needs root, for `ip` to change interfaces"

// A pair of connected interfaces, left and right, both up.
class Veth : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_IP;
    ASSERT_TRUE(ip("link add left type veth peer name right"));
    ASSERT_TRUE(ip("link set left up") && ip("link set right up"));
  }
  void TearDown() override { ip("link del left 2>/dev/null"); }
};

TEST(Interfaces, ShowLoopback) {
  const auto lo = find("lo");
  ASSERT_TRUE(lo);
  EXPECT_TRUE(lo->loopback);
  EXPECT_TRUE(lo->up);
  EXPECT_EQ(65536u, lo->mtu);
  EXPECT_EQ(1u, lo->index);
  EXPECT_EQ((std::array<uint8_t, 6>{}), lo->mac);
  EXPECT_TRUE(has(*lo, ipv4("127.0.0.1")));
  EXPECT_TRUE(has(*lo, ipv6("::1")));
  EXPECT_EQ("lo", list_interfaces()->front().name);
}

TEST_F(Veth, ShowsNameMacMtuAndAddressesOfBothFamilies) {
  ASSERT_TRUE(ip("link set left address 02:11:22:33:44:55") && ip("link set left mtu 4200"));
  ASSERT_TRUE(ip("addr add 10.77.0.1/24 dev left") && ip("addr add 10.77.1.1/24 dev left"));
  ASSERT_TRUE(ip("addr add fd00::7/64 dev left nodad"));
  const auto left = find("left");
  ASSERT_TRUE(left);
  EXPECT_EQ((std::array<uint8_t, 6>{2, 0x11, 0x22, 0x33, 0x44, 0x55}), left->mac);
  EXPECT_EQ(4200u, left->mtu);
  EXPECT_TRUE(left->up);
  EXPECT_FALSE(left->loopback);
  for (const auto& address : {ipv4("10.77.0.1"), ipv4("10.77.1.1"), ipv6("fd00::7")})
    EXPECT_TRUE(has(*left, address));
  EXPECT_FALSE(has(*find("right"), ipv4("10.77.0.1")));
}

TEST_F(Veth, ComesOnceHoweverManyAddressesItHas) {
  for (int i = 1; i <= 40; ++i) ASSERT_TRUE(ip("addr add 10.77." + std::to_string(i) + ".1/24 dev left"));
  const auto all = *list_interfaces();
  EXPECT_EQ(1, std::ranges::count(all, "left", &Interface::name));
  EXPECT_GE(find("left")->addresses.size(), 40u);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Interface::index));
}

TEST_F(Veth, IsDownWithoutACarrierOrByCommand) {
  ASSERT_TRUE(ip("link set right down"));
  EXPECT_TRUE(support::eventually([] { return !find("left")->up; }));  // no carrier
  ASSERT_TRUE(ip("link set right up"));
  EXPECT_TRUE(support::eventually([] { return find("left")->up; }));
  ASSERT_TRUE(ip("link set left down"));
  EXPECT_FALSE(find("left")->up);
}

// Old-style aliases label an address: "left:1" is an address of left, not an interface.
TEST_F(Veth, KeepsItsNameWhenAnAddressIsLabelled) {
  ASSERT_TRUE(ip("link set left addrgenmode none") && ip("addr flush dev left"));
  ASSERT_TRUE(ip("addr add 10.77.0.1/24 dev left") && ip("addr add 10.77.0.2/24 dev left label left:1"));
  const auto left = find("left");
  ASSERT_TRUE(left);
  EXPECT_EQ((std::vector<Address>{ipv4("10.77.0.1"), ipv4("10.77.0.2")}), left->addresses);
  EXPECT_FALSE(find("left:1"));
}

TEST_F(Veth, ItsPointToPointAddressIsTheLocalOne) {
  ASSERT_TRUE(ip("addr add 10.88.0.1 peer 10.88.0.2 dev left"));
  EXPECT_TRUE(has(*find("left"), ipv4("10.88.0.1")));
  EXPECT_FALSE(has(*find("left"), ipv4("10.88.0.2")));
}

TEST_F(Veth, WatchSeesAddressesComeAndGo) {
  const auto watch = *watch_interfaces();
  // The link has news of its own for a moment after it came up.
  ASSERT_TRUE(support::eventually([&] {
    drain_changes(watch.get());
    return !readable(watch.get(), 100);
  }));
  for (const char* change : {"addr add 10.77.0.1/24 dev left", "addr add fd00::7/64 dev left nodad",
                             "addr del 10.77.0.1/24 dev left", "addr del fd00::7/64 dev left",
                             "link set left mtu 1400", "link set right down"}) {
    ASSERT_TRUE(ip(change));
    EXPECT_TRUE(readable(watch.get())) << change;
    ASSERT_TRUE(support::eventually([&] {
      drain_changes(watch.get());
      return !readable(watch.get(), 100);
    })) << change;
  }
}

TEST(Interfaces, WatchSeesInterfacesComeAndGo) {
  NEEDS_IP;
  const auto watch = *watch_interfaces();
  EXPECT_FALSE(readable(watch.get(), 0));
  ASSERT_TRUE(ip("link add passing type veth peer name by"));
  EXPECT_TRUE(readable(watch.get()));
  EXPECT_TRUE(find("passing"));
  drain_changes(watch.get());
  ASSERT_TRUE(ip("link del passing"));
  EXPECT_TRUE(readable(watch.get()));
  EXPECT_FALSE(find("passing"));
}

TEST(Interfaces, DrainReturnsThoughNoticesWereLost) {
  NEEDS_IP;
  const auto watch = *watch_interfaces();
  const int smallest = 1;
  ASSERT_EQ(0, ::setsockopt(watch.get(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(ip("link set lo mtu " + std::to_string(60'000 + i)));
  EXPECT_TRUE(readable(watch.get()));
  drain_changes(watch.get());
  EXPECT_FALSE(readable(watch.get(), 0));
  ASSERT_TRUE(ip("link set lo mtu 65536"));
}

}  // namespace
}  // namespace verbena::net
