#include "net/udp_link.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <thread>

#include "net/socket_option.hpp"
#include "net/steering.hpp"
#include "other_host.hpp"
#include "support/isolated.hpp"
#include "wire.hpp"

namespace verbena::net {
namespace {

std::set<int> open_fds() {
  std::set<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    fds.insert(std::stoi(entry.path().filename()));
  std::erase_if(fds, [](int fd) { return ::fcntl(fd, F_GETFD) < 0; });  // the listing's own
  return fds;
}

std::set<int> without(std::set<int> all, const std::set<int>& others) {
  std::erase_if(all, [&](int fd) { return others.contains(fd); });
  return all;
}

// A group of sockets with links for slots 1 and 2.
class Loopback : public testing::Test {
 protected:
  void SetUp() override {
    one_ = link_for(1);
    two_ = link_for(2);
  }
  std::unique_ptr<UdpLink> link_for(unsigned slot, const UdpBuffers& buffers = {}) {
    auto link = UdpLink::create(base::UniqueFd(::fcntl(group_[slot].get(), F_DUPFD_CLOEXEC, 0)), buffers);
    EXPECT_TRUE(link) << link.error().sentence;
    return std::move(*link);
  }

  SteeredGroup group_ = *create_group();
  std::unique_ptr<UdpLink> one_;
  std::unique_ptr<UdpLink> two_;
};

class Families : public Loopback, public testing::WithParamInterface<int> {
 protected:
  [[nodiscard]] static Route to(unsigned slot, bool recognised = true) {
    return GetParam() == 4 ? loopback4(slot, recognised) : loopback6(slot, recognised);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Families, testing::Values(4, 6),
                         [](const auto& over) { return "IPv" + std::to_string(over.param); });

TEST_P(Families, RunsArriveAsTheyWereSent) {
  Transmitter transmitter(*one_);
  Route route = to(2);
  route.traffic_class = 0x6a;
  route.hop_limit = 17;
  two_->tell_hops();
  Keeper keeper;
  size_t sent = 0;
  // One packet, a few, the most there can be, and the same with a shorter one at the end.
  for (const size_t packets : {1u, 2u, 15u, 64u})
    for (const bool shorter : {false, true}) {
      for (size_t i = 0; i < packets; ++i)
        transmit(transmitter, route,
                 packet_of(2, static_cast<uint32_t>(sent++), shorter && i + 1 == packets ? 64 : 1'000));
      transmitter.flush();
      ASSERT_TRUE(keeper.take(*two_, sent));
    }
  for (size_t i = 0; i < keeper.kept.size(); ++i) {
    const auto& [about, bytes] = keeper.kept[i];
    EXPECT_EQ(body(packet_of(2, static_cast<uint32_t>(i), bytes.size())), body(bytes)) << i;
    EXPECT_TRUE(keeper.icrc_fits(i)) << i;
    EXPECT_EQ(route.from, about.from);
    EXPECT_EQ(route.to, about.to);
    EXPECT_EQ(one_->source_port(route), about.source_port);
    EXPECT_EQ(0x6a, about.traffic_class);
    EXPECT_EQ(17, about.hop_limit);
    EXPECT_EQ(1u, about.interface);  // lo
  }
  EXPECT_EQ(sent, one_->sent().packets);
  EXPECT_EQ(sent, two_->received().packets);
  EXPECT_EQ(one_->sent().bytes, two_->received().bytes);
  // The kernel took and gave the runs whole.
  EXPECT_EQ(6u, one_->sent().segmented_runs);
  EXPECT_EQ(6u, two_->received().merged);
  EXPECT_EQ(0u, one_->sent().split_runs);
}

// After some runs of packets of one length the socket cuts by itself. What comes then may be as long as it
// likes.
TEST_P(Families, OtherLengthsBehindManyRunsOfOneLength) {
  struct Sent {
    uint32_t packets;
    size_t bytes;
  };
  const std::vector<Sent> others{{1, 64},    {1, 1'000}, {1, 1'004},  {1, 4'000}, {3, 500},  {3, 1'400},
                                 {2, 1'000}, {1, 4'000}, {40, 1'000}, {1, 1'000}, {1, 2'000}};
  std::vector<Sent> all(40, {3, 1'000});
  all.insert(all.end(), others.begin(), others.end());
  all.insert(all.end(), 40, {2, 600});
  all.insert(all.end(), others.begin(), others.end());

  Transmitter transmitter(*one_);
  Keeper keeper;
  std::vector<size_t> sizes;
  size_t runs = 0;
  for (const auto& [packets, bytes] : all) {
    for (uint32_t i = 0; i < packets; ++i) {
      transmit(transmitter, to(2), packet_of(2, static_cast<uint32_t>(sizes.size()), bytes));
      sizes.push_back(bytes);
    }
    transmitter.flush();
    runs += packets > 1;
    ASSERT_TRUE(keeper.take(*two_, sizes.size()));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(body(packet_of(2, static_cast<uint32_t>(i), sizes[i])), body(keeper.kept[i].bytes)) << i;
    EXPECT_TRUE(keeper.icrc_fits(i)) << i;
  }
  EXPECT_EQ(runs, one_->sent().segmented_runs);
  // Of each 40 alike all from the 17th on; behind the first of them two more runs have that length.
  EXPECT_EQ(2 * (40 - 16) + 2, one_->sent().cut_by_socket);
  EXPECT_EQ(runs, two_->received().merged);
  EXPECT_EQ(0u, one_->sent().split_runs);
}

TEST_P(Families, TheLargestRunPasses) {
  Transmitter transmitter(*one_);
  for (uint32_t i = 0; i < 65; ++i) transmit(transmitter, to(2), packet_of(2, i, 1'012));
  transmitter.flush();
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 65));
  EXPECT_EQ(63u, keeper.kept[63].about.segment);
  for (size_t i = 0; i < 65; ++i) EXPECT_TRUE(keeper.icrc_fits(i));
}

TEST_P(Families, ForeignPeersGetPlainDatagrams) {
  Transmitter transmitter(*one_);
  for (uint32_t i = 0; i < 20; ++i) transmit(transmitter, to(2, false), packet_of(2, i, 300));
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 20));
  EXPECT_EQ(0u, one_->sent().segmented_runs);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(0u, keeper.kept[i].about.segment);
    EXPECT_TRUE(keeper.icrc_fits(i, roce::IdRule::kAny));
  }
}

TEST_P(Families, EachSlotGetsItsOwn) {
  Transmitter transmitter(*one_);
  for (uint32_t i = 0; i < 60; ++i) transmit(transmitter, to(1 + i % 2), packet_of(1 + i % 2, i, 100));
  transmitter.flush();
  Keeper first, second;
  ASSERT_TRUE(first.take(*one_, 30));
  ASSERT_TRUE(second.take(*two_, 30));
  EXPECT_NE(one_->source_port(to(1)), one_->source_port(to(2)));
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(body(packet_of(1, static_cast<uint32_t>(2 * i), 100)), body(first.kept[i].bytes));
    EXPECT_EQ(body(packet_of(2, static_cast<uint32_t>(2 * i + 1), 100)), body(second.kept[i].bytes));
  }
}

// Nothing of ours sends such a run, but anybody can: its packets must come to light at whoever got it.
TEST_P(Families, ARunThatMixesSlotsComesWholeToTheFirstOnesOwner) {
  Bytes bytes;
  for (uint32_t i = 0; i < 8; ++i) {
    const Bytes packet = packet_of(1 + i % 2, i, 200);
    bytes.insert(bytes.end(), packet.begin(), packet.end());
  }
  ASSERT_TRUE(two_->send({to(1), 200, bytes}));
  Keeper first, second;
  ASSERT_TRUE(first.take(*one_, 8));
  ASSERT_TRUE(second.take(*two_, 0));
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(1 + i % 2, roce::parse(body(first.kept[i].bytes))->bth.destination.slot().value);
}

TEST_P(Families, AnotherAddressOfOursIsTheSourceIfTheRouteSaysSo) {
  Route route = to(2);
  if (GetParam() == 4) {
    route.from = ipv4("127.1.2.3");
  } else {
    if (!support::ip("link set lo up 2>/dev/null")) GTEST_SKIP() << "needs root, for `ip`";
    ASSERT_TRUE(add_address6("fd00::99", "lo"));
    route.from = ipv6("fd00::99");
  }
  // Each source has its socket, whichever came first.
  const std::array routes{to(2), route, to(2), route};
  Transmitter transmitter(*one_);
  for (const Route& way : routes) {
    transmit(transmitter, way, packet_of(2, 0, 100));
    transmitter.flush();
  }
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, routes.size()));
  for (size_t i = 0; i < routes.size(); ++i) {
    EXPECT_EQ(routes[i].from, keeper.kept[i].about.from);
    EXPECT_EQ(one_->source_port(routes[i]), keeper.kept[i].about.source_port);
    EXPECT_TRUE(keeper.icrc_fits(i));
  }
  if (GetParam() == 6) support::ip("addr del fd00::99/64 dev lo");
}

TEST_P(Families, ASourceThatIsNotOursIsUnreachable) {
  Route route = to(2);
  route.from = GetParam() == 4 ? ipv4("203.0.113.7") : ipv6("2001:db8::7");
  EXPECT_FALSE(one_->send({route, 100, packet_of(2, 0, 100)}));
  EXPECT_EQ(1u, one_->sent().unreachable);
  EXPECT_EQ(0u, one_->sent().packets);
  // The socket that was made for it is as good as any for others.
  EXPECT_TRUE(one_->send({to(2), 100, packet_of(2, 0, 100)}));
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 1));
  EXPECT_EQ(to(2).from, keeper.kept[0].about.from);
}

TEST_P(Families, ASourceThatWentAwayIsUnreachable) {
  if (!support::ip("link set lo up 2>/dev/null")) GTEST_SKIP() << "needs root, for `ip`";
  Route route = to(2);
  if (GetParam() == 4) {
    ASSERT_TRUE(support::ip("addr add 10.9.9.9/32 dev lo"));
    route.from = ipv4("10.9.9.9");
  } else {
    ASSERT_TRUE(add_address6("fd00::98", "lo"));
    route.from = ipv6("fd00::98");
  }
  EXPECT_TRUE(one_->send({route, 100, packet_of(2, 0, 100)}));
  support::ip(GetParam() == 4 ? "addr del 10.9.9.9/32 dev lo" : "addr del fd00::98/64 dev lo");
  EXPECT_FALSE(one_->send({route, 100, packet_of(2, 0, 100)}));
  EXPECT_EQ(1u, one_->sent().unreachable);
  EXPECT_TRUE(one_->send({to(2), 100, packet_of(2, 0, 100)})) << "others go on";
}

TEST_P(Families, NobodySendsFromAGroupOrABroadcastAddress) {
  for (const Address& source :
       {GetParam() == 4 ? ipv4("239.1.1.1") : ipv6("ff05::1"), ipv4("127.255.255.255")}) {
    if (source.ipv4() != (GetParam() == 4)) continue;
    Route route = to(2);
    route.from = source;
    EXPECT_FALSE(one_->send({route, 100, packet_of(2, 0, 100)}));
  }
  EXPECT_EQ(GetParam() == 4 ? 2u : 1u, one_->sent().unreachable);
}

TEST_P(Families, NoRouteIsUnreachable) {
  Route route = to(2);
  route.to = GetParam() == 4 ? ipv4("203.0.113.7") : ipv6("2001:db8::7");
  EXPECT_FALSE(one_->send({route, 100, Bytes(300)}));
  EXPECT_EQ(1u, one_->sent().unreachable);
}

TEST_P(Families, SegmentsBeyondTheMtuAreTooLong) {
  if (!support::ip("link set lo mtu 1500 2>/dev/null")) GTEST_SKIP() << "needs root, for `ip`";
  EXPECT_FALSE(one_->send({to(2), 2'000, packet_of(2, 0, 2'000)}));
  EXPECT_EQ(1u, one_->sent().too_long);
  EXPECT_FALSE(one_->send({to(2), 2'000, Bytes(6'000)}));
  EXPECT_EQ(2u, one_->sent().too_long);
  // A run may be longer than the MTU, its packets may not.
  EXPECT_TRUE(one_->send({to(2), 1'000, Bytes(30'000)}));
  EXPECT_TRUE(support::ip("link set lo mtu 65536"));
}

// As on a kernel or a device that doesn't segment; here it is more packets than any kernel cuts.
TEST_P(Families, ARunThatTheKernelRefusesGoesPacketByPacket) {
  Bytes bytes;
  for (uint32_t i = 0; i < 200; ++i) {
    const Bytes packet = packet_of(2, i, 64);
    bytes.insert(bytes.end(), packet.begin(), packet.end());
  }
  EXPECT_TRUE(one_->send({to(2), 64, bytes}));
  EXPECT_EQ(1u, one_->sent().split_runs);
  EXPECT_EQ(200u, one_->sent().packets);
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 200));
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(packet_of(2, i, 64), keeper.kept[i].bytes);
}

// Also of what had come before it was asked for.
TEST_P(Families, HopsAreToldToWhoAsks) {
  Route route = to(2);
  route.traffic_class = 0x6a;
  route.hop_limit = 17;
  EXPECT_TRUE(one_->send({route, 100, packet_of(2, 0, 100)}));
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 1));
  EXPECT_TRUE(one_->send({route, 100, packet_of(2, 1, 100)}));
  two_->tell_hops();
  ASSERT_TRUE(keeper.take(*two_, 2));
  EXPECT_EQ(0, keeper.kept[0].about.hop_limit);
  EXPECT_EQ(17, keeper.kept[1].about.hop_limit);
  EXPECT_EQ(0x6a, keeper.kept[1].about.traffic_class);
}

TEST_P(Families, HopLimitZeroIsSentAsOne) {
  Route route = to(2);
  route.hop_limit = 0;
  two_->tell_hops();
  EXPECT_TRUE(one_->send({route, 100, packet_of(2, 0, 100)}));
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 1));
  EXPECT_EQ(1, keeper.kept[0].about.hop_limit);
}

TEST_F(Loopback, LinkLocalAddressesNeedTheirInterface) {
  if (!support::ip("link set lo up 2>/dev/null") || !add_address6("fe80::7", "lo"))
    GTEST_SKIP() << "needs root, for `ip`";
  Route route{.from = ipv6("fe80::7"), .to = ipv6("fe80::7"), .slot = {2}, .recognised = true};
  EXPECT_FALSE(one_->send({route, 100, packet_of(2, 0, 100)}));
  EXPECT_EQ(1u, one_->sent().unreachable);
  route.interface = 1;
  Transmitter transmitter(*one_);
  for (uint32_t i = 0; i < 10; ++i) transmit(transmitter, route, packet_of(2, i, 100));
  transmitter.flush();
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*two_, 10));
  EXPECT_EQ(route.from, keeper.kept[0].about.from);
  EXPECT_EQ(1u, keeper.kept[0].about.interface);
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(keeper.icrc_fits(i));
  EXPECT_TRUE(support::ip("addr del fe80::7/64 dev lo"));
}

TEST_F(Loopback, ReceivingStopsAtItsBudgetAndGoesOnLater) {
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(one_->send({loopback4(2, false), 100, packet_of(2, i, 100)}));
  Keeper keeper;
  // Until they prove to be many they come one by one.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(1u, two_->receive(keeper, 3));
  EXPECT_EQ(3u, two_->receive(keeper, 3));
  EXPECT_EQ(0u, two_->receive(keeper, 0));
  EXPECT_EQ(10u, two_->receive(keeper, 10));
  EXPECT_EQ(3u, two_->receive(keeper, 10));
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(body(packet_of(2, i, 100)), body(keeper.kept[i].bytes));
}

TEST_F(Loopback, RuntsAndEmptyDatagramsAreShown) {
  auto agent = link_for(0);
  const base::UniqueFd stranger(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 to{.sin6_family = AF_INET6, .sin6_port = htons(kRocePort), .sin6_addr = in6addr_loopback};
  for (const size_t bytes : {0u, 1u, 4u})
    ASSERT_EQ(static_cast<ssize_t>(bytes),
              ::sendto(stranger.get(), "abcd", bytes, 0, reinterpret_cast<sockaddr*>(&to), sizeof to));
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*agent, 3));
  EXPECT_EQ(0u, keeper.kept[0].bytes.size());
  EXPECT_EQ(4u, keeper.kept[2].bytes.size());
}

TEST_F(Loopback, AFullReceiveBufferLosesWholePacketsAndCountsThem) {
  auto tiny = link_for(3, {.receive_bytes = 1});
  EXPECT_LT(tiny->received().receive_buffer_bytes, 10'000u);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(one_->send({loopback4(3), 1'000, packet_of(3, i, 1'000)}));
  Keeper keeper;
  tiny->receive(keeper, 1'000);
  EXPECT_GT(keeper.kept.size(), 0u);
  EXPECT_LT(keeper.kept.size(), 20u);
  // The kernel tells with the next packet how many it lost before it.
  EXPECT_TRUE(one_->send({loopback4(3), 1'000, packet_of(3, 100, 1'000)}));
  const size_t before = keeper.kept.size();
  ASSERT_TRUE(keeper.take(*tiny, before + 1));
  EXPECT_EQ(100 - before, tiny->received().kernel_drops);
  for (size_t i = 0; i < before; ++i)
    EXPECT_EQ(body(packet_of(3, static_cast<uint32_t>(i), 1'000)), body(keeper.kept[i].bytes));
  // Another owner of the same socket doesn't inherit the count.
  auto next = link_for(3);
  EXPECT_TRUE(one_->send({loopback4(3), 1'000, packet_of(3, 0, 1'000)}));
  Keeper other;
  ASSERT_TRUE(other.take(*next, 1));
  EXPECT_EQ(0u, next->received().kernel_drops);
}

TEST_F(Loopback, TheBufferIsAskedForWithinLimits) {
  EXPECT_GT(link_for(4, {.receive_bytes = 212'992})->received().receive_buffer_bytes, 212'992u - 1);
  EXPECT_EQ(2u * 212'992u, link_for(5, {.receive_bytes = 212'992})->received().receive_buffer_bytes);
}

TEST_F(Loopback, SocketsAreMadeOnFirstUseAndCloseOnExec) {
  const auto before = open_fds();
  (void)one_->source_port(loopback4(2));
  EXPECT_EQ(1u, without(open_fds(), before).size());
  ASSERT_TRUE(one_->send({loopback4(2), 100, packet_of(2, 0, 100)}));
  EXPECT_EQ(1u, without(open_fds(), before).size());
  // Another slot, another family; foreign peers share one whatever their slot.
  for (const Route& route : {loopback4(3), loopback6(2), loopback4(2, false), loopback4(3, false)})
    EXPECT_NE(0, one_->source_port(route));
  EXPECT_EQ(4u, without(open_fds(), before).size());
  for (const int fd : without(open_fds(), before)) {
    EXPECT_NE(0, ::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_NE(0, ::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
  one_.reset();
  EXPECT_EQ(before.size() - 1, open_fds().size());
}

TEST_F(Loopback, SendingSocketsTakeNothingIn) {
  const auto before = open_fds();
  const uint16_t port = one_->source_port(loopback4(2));
  const auto made = without(open_fds(), before);
  ASSERT_EQ(1u, made.size());
  const base::UniqueFd stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  ASSERT_EQ(4, ::sendto(stranger.get(), "spam", 4, 0, reinterpret_cast<sockaddr*>(&to), sizeof to));
  char byte = 0;
  EXPECT_EQ(-1, ::recv(*made.begin(), &byte, 1, MSG_DONTWAIT));
  EXPECT_EQ(EAGAIN, errno);
}

// Daemons close what they don't know; the numbers may then be files of theirs.
TEST_F(Loopback, ClosedUnderUsItFailsAndTouchesNothingElse) {
  const auto before = open_fds();
  const uint16_t port = one_->source_port(loopback4(2));
  const auto made = without(open_fds(), before);
  ASSERT_EQ(1u, made.size());
  ::close(*made.begin());
  EXPECT_FALSE(one_->send({loopback4(2), 100, packet_of(2, 0, 100)}));
  EXPECT_EQ(1u, one_->sent().closed);

  int ends[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
  // A program that comes to our number again has opened hundreds of files meanwhile, which takes longer than
  // the link believes what it saw.
  ASSERT_EQ(*made.begin(), ::dup2(ends[0], *made.begin()));
  ::close(ends[0]);
  ends[0] = *made.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(one_->send({loopback4(2), 100, Bytes(1'000)}));
  EXPECT_EQ(2u, one_->sent().closed);
  char byte = 0;
  EXPECT_EQ(-1, ::recv(ends[1], &byte, 1, MSG_DONTWAIT));
  EXPECT_EQ(port, one_->source_port(loopback4(2)));

  // The receiving socket as well.
  const int receiving = two_->fd();
  ::close(receiving);
  EXPECT_EQ(-1, two_->fd());
  Keeper keeper;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(0u, two_->receive(keeper, 10));
  EXPECT_EQ(1u, two_->received().closed);
  one_.reset();
  two_.reset();
  EXPECT_GE(::fcntl(ends[0], F_GETFD), 0) << "somebody else's descriptor was closed";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(UdpLink, RefusesWhatIsNoUdpSocket) {
  EXPECT_EQ(EBADF, UdpLink::create(base::UniqueFd()).error().code);
  EXPECT_EQ(ENOTSOCK, UdpLink::create(base::UniqueFd(::open("/dev/null", O_RDWR))).error().code);
  EXPECT_EQ(EPROTOTYPE, UdpLink::create(base::UniqueFd(::socket(AF_INET, SOCK_STREAM, 0))).error().code);
}

// On a host without IPv6 the group has IPv4 sockets.
TEST(UdpLink, ReceivesFromAnIpv4Socket) {
  base::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{.sin_family = AF_INET, .sin_port = htons(kRocePort)};
  ASSERT_EQ(0, ::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), sizeof any));
  auto link = *UdpLink::create(std::move(socket));
  link->tell_hops();
  Transmitter transmitter(*link);
  Route route = loopback4(2);
  route.traffic_class = 0x22;
  for (uint32_t i = 0; i < 30; ++i) transmit(transmitter, route, packet_of(2, i, 500));
  transmitter.flush();
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*link, 30));
  for (size_t i = 0; i < 30; ++i) EXPECT_TRUE(keeper.icrc_fits(i));
  EXPECT_EQ(route.to, keeper.kept[0].about.to);
  EXPECT_EQ(0x22, keeper.kept[0].about.traffic_class);
  EXPECT_EQ(64, keeper.kept[0].about.hop_limit);
}

}  // namespace
}  // namespace verbena::net
