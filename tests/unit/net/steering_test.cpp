#include "net/steering.hpp"

#include <fcntl.h>

#include <random>

#include "packets.hpp"

namespace verbena::net {
namespace {

using Arrived = std::map<size_t, std::vector<std::string>>;

TEST(Steering, BringsEachPacketToItsSlotsSocketOverBothFamilies) {
  const auto group = create_group();
  ASSERT_TRUE(group) << group.error().sentence;
  ASSERT_EQ(251u, group->size());
  expect_steered(*group);
}

TEST(Steering, LooksAtTheSlotAndNothingElse) {
  const auto group = *create_group();
  const auto sender = connect_to_port(AF_INET);
  std::mt19937 random(1);
  Arrived expected;
  for (int i = 0; i < 500; ++i) {
    std::string packet(12 + random() % 100, '\0');
    for (char& c : packet) c = static_cast<char>(random());
    packet[5] = static_cast<char>(random() % base::kSteeredSlots);
    expected[static_cast<uint8_t>(packet[5])].push_back(packet);
    send_packet(sender.get(), packet);
  }
  EXPECT_EQ(expected, arrivals(group, 500));
}

TEST(Steering, GivesTheAgentWhatIsForNobody) {
  const auto group = *create_group();
  for (const int family : {AF_INET, AF_INET6}) {
    const auto sender = connect_to_port(family);
    Arrived expected;
    for (const unsigned slot : {251, 252, 253, 254, 255}) expected[0].push_back(packet_for(slot));
    for (size_t length = 0; length <= 5; ++length) expected[0].emplace_back(length, '\x07');  // no byte 5
    for (const auto& packet : expected[0]) send_packet(sender.get(), packet);
    EXPECT_EQ(expected, arrivals(group, expected[0].size()));
  }
}

TEST(Steering, TheShortestPacketThatNamesASlotGoesThere) {
  const auto group = *create_group();
  const auto sender = connect_to_port(AF_INET);
  send_packet(sender.get(), std::string(6, '\x07'));
  EXPECT_EQ((Arrived{{7, {std::string(6, '\x07')}}}), arrivals(group, 1));
}

TEST(Steering, HoldsWhileACopyOfEachSocketIsOpen) {
  auto group = *create_group();
  SteeredGroup copies;
  for (const auto& socket : group) copies.emplace_back(::dup(socket.get()));
  for (size_t slot = 0; slot < group.size(); slot += 3) group[slot].reset();  // as processes end
  expect_steered(copies);
}

TEST(Group, IsCloseOnExecAndDoesNotBlock) {
  const auto group = *create_group();
  for (const auto& socket : group) {
    ASSERT_TRUE(::fcntl(socket.get(), F_GETFD) & FD_CLOEXEC);
    ASSERT_TRUE(::fcntl(socket.get(), F_GETFL) & O_NONBLOCK);
  }
}

TEST(Group, IsNeverAppendedToAnother) {
  const size_t before = open_descriptors();
  {
    const auto first = *create_group();
    const auto second = create_group();
    ASSERT_FALSE(second);
    EXPECT_EQ(EADDRINUSE, second.error().code);
    expect_steered(first);
  }
  EXPECT_EQ(before, open_descriptors());
  EXPECT_TRUE(create_group());  // the port is free again
}

TEST(Group, IsNotMadeBesideAnySocketOnThePort) {
  struct Case {
    const char* what;
    int family;
    int option;  // of SOL_SOCKET, set on that socket
  };
  for (const auto& c :
       {Case{"IPv4", AF_INET, 0}, Case{"IPv6", AF_INET6, 0}, Case{"shared", AF_INET, SO_REUSEPORT},
        Case{"shared IPv6", AF_INET6, SO_REUSEPORT}, Case{"reused", AF_INET, SO_REUSEADDR}}) {
    const auto other = udp_socket(c.family);
    const int one = 1;
    if (c.option != 0) {
      ASSERT_EQ(0, ::setsockopt(other.get(), SOL_SOCKET, c.option, &one, sizeof one));
    }
    ASSERT_EQ(0, bind_to(other.get(), c.family, kRocePort)) << c.what;
    const auto group = create_group();
    ASSERT_FALSE(group) << c.what;
    EXPECT_EQ(EADDRINUSE, group.error().code) << c.what;
  }
}

TEST(Drain, EmptiesOneSlotAndNoOther) {
  const auto group = *create_group();
  const auto sender = connect_to_port(AF_INET);
  for (int i = 0; i < 20; ++i) send_packet(sender.get(), packet_for(7));
  send_packet(sender.get(), packet_for(8));
  pollfd ready{group[8].get(), POLLIN, 0};
  ASSERT_EQ(1, ::poll(&ready, 1, 2'000));  // sent after the others, so all are there
  drain(group[7].get());
  EXPECT_EQ((Arrived{{8, {packet_for(8)}}}), arrivals(group, 1));
}

TEST(Drain, TakesEmptyPacketsToo) {
  const auto group = *create_group();
  const auto sender = connect_to_port(AF_INET);
  for (int i = 0; i < 3; ++i) send_packet(sender.get(), "");
  send_packet(sender.get(), packet_for(1));
  pollfd ready{group[1].get(), POLLIN, 0};
  ASSERT_EQ(1, ::poll(&ready, 1, 2'000));
  drain(group[0].get());
  drain(group[0].get());  // an empty socket stays one
  EXPECT_EQ((Arrived{{1, {packet_for(1)}}}), arrivals(group, 1));
}

TEST(PortOwner, IsNobodyOnAFreePort) {
  const auto neighbour = udp_socket(AF_INET);
  ASSERT_EQ(0, bind_to(neighbour.get(), AF_INET, kRocePort + 1));
  EXPECT_EQ(-1, port_owner_uid());
}

TEST(PortOwner, IsUsWithOurGroupOrASocketOfEitherFamily) {
  {
    const auto group = *create_group();
    EXPECT_EQ(static_cast<int64_t>(::geteuid()), port_owner_uid());
  }
  for (const int family : {AF_INET, AF_INET6}) {
    const auto socket = udp_socket(family);
    ASSERT_EQ(0, bind_to(socket.get(), family, kRocePort));
    EXPECT_EQ(static_cast<int64_t>(::geteuid()), port_owner_uid());
  }
  EXPECT_EQ(-1, port_owner_uid());
}

TEST(PortOwner, IsTheOtherUserWhoseSocketItIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  constexpr uid_t kOther = 12345;
  ASSERT_EQ(0, ::seteuid(kOther));
  const auto socket = udp_socket(AF_INET);
  const int bound = bind_to(socket.get(), AF_INET, kRocePort);
  ASSERT_EQ(0, ::seteuid(0));
  ASSERT_EQ(0, bound);
  EXPECT_EQ(static_cast<int64_t>(kOther), port_owner_uid());
}

}  // namespace
}  // namespace verbena::net
