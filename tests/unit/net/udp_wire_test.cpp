// Between two network namespaces: what is on the wire, seen by a raw listener, and what arrives.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>

#include <map>

#include "net/steering.hpp"
#include "net/udp_link.hpp"
#include "other_host.hpp"
#include "roce/bytes.hpp"
#include "wire.hpp"

namespace verbena::net {
namespace {

class Wire : public testing::Test {
 protected:
  void SetUp() override {
    if (!support::ip("link set lo up 2>/dev/null")) GTEST_SKIP() << "needs root, for `ip`";
    host_ = std::make_unique<OtherHost>();
    ours_ = *create_group();
    here_ = *UdpLink::create(std::move(ours_[1]));
    host_->in([&] {
      theirs_ = *create_group();
      there_ = *UdpLink::create(std::move(theirs_[2]));
      interface_there_ = ::if_nametoindex("there");
    });
  }

  [[nodiscard]] static Route route4(bool recognised = true) {
    return {.from = ipv4("10.5.0.1"), .to = ipv4("10.5.0.2"), .slot = {2}, .recognised = recognised};
  }
  [[nodiscard]] static Route route6(bool recognised = true) {
    return {.from = ipv6("fd05::1"), .to = ipv6("fd05::2"), .slot = {2}, .recognised = recognised};
  }

  void send(const Route& route, uint32_t packets, size_t bytes) {
    Transmitter transmitter(*here_);
    for (uint32_t i = 0; i < packets; ++i) transmit(transmitter, route, packet_of(2, i, bytes));
    transmitter.flush();
    EXPECT_EQ(0u, transmitter.counters().lost_packets);
  }

  void expect_arrived(const Route& route, uint32_t packets, size_t bytes) {
    Keeper keeper;
    ASSERT_TRUE(keeper.take(*there_, packets));
    for (uint32_t i = 0; i < keeper.kept.size(); ++i) {
      EXPECT_EQ(body(packet_of(2, i, bytes)), body(keeper.kept[i].bytes)) << i;
      EXPECT_TRUE(keeper.icrc_fits(i)) << i;
      EXPECT_EQ(route.from, keeper.kept[i].about.from);
      EXPECT_EQ(interface_there_, keeper.kept[i].about.interface);
    }
  }

  // From the 17th on the socket cuts by itself.
  void send_forty_alike(const Route& route) {
    const uint64_t cut = here_->sent().cut_by_socket;
    for (int i = 0; i < 40; ++i) send(route, 2, 1'000);
    EXPECT_EQ(cut + 24, here_->sent().cut_by_socket);
    Keeper keeper;
    ASSERT_TRUE(keeper.take(*there_, 80));
    for (uint32_t i = 0; i < keeper.kept.size(); ++i) EXPECT_TRUE(keeper.icrc_fits(i)) << i;
  }

  std::unique_ptr<OtherHost> host_;
  SteeredGroup ours_, theirs_;
  std::unique_ptr<UdpLink> here_, there_;
  uint32_t interface_there_ = 0;
};

// Sees every IP packet that comes in at the other host, before anything is merged.
class Listener {
 public:
  explicit Listener(const OtherHost& host) {
    host.in([&] {
      socket_.reset(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL)));
      sockaddr_ll to{.sll_family = AF_PACKET,
                     .sll_protocol = htons(ETH_P_ALL),
                     .sll_ifindex = static_cast<int>(::if_nametoindex("there"))};
      EXPECT_EQ(0, ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to));
    });
  }

  // The next UDP packet to the RoCE port, from its IP header on; empty: none within a second.
  Bytes next() {
    while (true) {
      pollfd ready{socket_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 1'000) != 1) return {};
      Bytes packet(70'000);
      const ssize_t got = ::recv(socket_.get(), packet.data(), packet.size(), 0);
      if (got < 48) continue;
      packet.resize(static_cast<size_t>(got));
      const bool v4 = packet[0] == std::byte{0x45};
      const size_t udp = v4 ? 20 : 40;
      if (packet[v4 ? 9 : 6] != std::byte{17}) continue;  // neighbour discovery and such
      if (roce::load_be<uint16_t>(&packet[udp + 2]) == kRocePort) return packet;
    }
  }

 private:
  base::UniqueFd socket_;
};

roce::Flow flow_of(const Bytes& packet) {
  roce::Flow flow;
  if (packet[0] == std::byte{0x45}) {
    flow.source[10] = flow.source[11] = flow.destination[10] = flow.destination[11] = 0xff;
    std::memcpy(&flow.source[12], &packet[12], 4);
    std::memcpy(&flow.destination[12], &packet[16], 4);
  } else {
    std::memcpy(flow.source.data(), &packet[8], 16);
    std::memcpy(flow.destination.data(), &packet[24], 16);
  }
  flow.source_port = roce::load_be<uint16_t>(&packet[flow.ipv4() ? 20 : 40]);
  return flow;
}

// The ICRC against the very ID that the packet carries, as hardware checks it.
bool icrc_right(const Bytes& packet, uint16_t id) {
  const auto flow = flow_of(packet);
  const auto bytes = std::span(packet).subspan((flow.ipv4() ? 20 : 40) + 8);
  Bytes expected(bytes.begin(), bytes.end());
  roce::append_icrc(flow, id, expected);
  return std::ranges::equal(expected, bytes);
}

uint16_t id_of(const Bytes& packet) { return roce::load_be<uint16_t>(&packet[4]); }
uint16_t checksum_of(const Bytes& packet) {
  return roce::load_be<uint16_t>(&packet[(packet[0] == std::byte{0x45} ? 20 : 40) + 6]);
}

TEST_F(Wire, RunsCrossWholeWhereTheDeviceTakesThem) {
  for (const Route& route : {route4(), route6()}) {
    send(route, 40, 1'000);
    expect_arrived(route, 40, 1'000);
  }
  EXPECT_EQ(2u, there_->received().merged);
}

TEST_F(Wire, LinkLocalAddressesCross) {
  const Route route{.from = ipv6("fe80::1"),
                    .to = ipv6("fe80::2"),
                    .interface = ::if_nametoindex("here"),
                    .slot = {2},
                    .recognised = true};
  send(route, 20, 1'000);
  expect_arrived(route, 20, 1'000);
}

TEST_F(Wire, SegmentsThatAreCutCarryTheirPlaceAsIdAndTheIcrcOfIt) {
  ASSERT_TRUE(set_feature("here", "tx-udp-segmentation", false));
  Listener listener(*host_);
  send(route4(), 64, 1'000);
  for (uint16_t i = 0; i < 64; ++i) {
    const Bytes packet = listener.next();
    ASSERT_EQ(1'028u, packet.size()) << i;
    EXPECT_EQ(i, id_of(packet));
    EXPECT_EQ(0x40, std::to_integer<int>(packet[6])) << "don't fragment";
    EXPECT_TRUE(icrc_right(packet, id_of(packet))) << i;
  }
  expect_arrived(route4(), 64, 1'000);
  EXPECT_EQ(1u, here_->sent().segmented_runs);

  send(route6(), 10, 1'000);
  for (uint16_t i = 0; i < 10; ++i) {
    const Bytes packet = listener.next();
    ASSERT_EQ(1'048u, packet.size());
    EXPECT_TRUE(icrc_right(packet, 0));
  }
  expect_arrived(route6(), 10, 1'000);
}

TEST_F(Wire, PlainOnesToForeignPeersHaveIdZeroAndNoChecksum) {
  Listener listener(*host_);
  for (const bool recognised : {false, true})
    for (const Route& route : {route4(recognised), route6(recognised)})
      for (int round = 0; round < 3; ++round) {
        send(route, 1, 600);
        const Bytes packet = listener.next();
        ASSERT_FALSE(packet.empty());
        EXPECT_TRUE(!route.to.ipv4() || id_of(packet) == 0);
        EXPECT_TRUE(icrc_right(packet, 0));
        EXPECT_EQ(!recognised && route.to.ipv4(), checksum_of(packet) == 0);
        expect_arrived(route, 1, 600);
      }
}

// The receiving kernel merges what was cut on the way: across runs, and not as they were sent.
TEST_F(Wire, WhatTheReceiverMergesAgainHasItsIcrcStill) {
  ASSERT_TRUE(set_feature("here", "tx-udp-segmentation", false));
  // veth merges only where its other end doesn't segment at all.
  for (const char* kind : {"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation",
                           "tx-tcp-mangleid-segmentation", "tx-tcp-accecn-segmentation"})
    set_feature("here", kind, false);
  host_->in([] { ASSERT_TRUE(set_feature("there", "rx-gro", true)); });
  for (const Route& route : {route4(), route6()}) {
    send(route, 200, 1'000);
    expect_arrived(route, 200, 1'000);
  }
  EXPECT_GT(there_->received().merged, 0u);
}

TEST_F(Wire, ADeviceWithoutChecksumsGetsTheRunAllTheSame) {
  set_feature("here", "tx-checksum-ip-generic", false);
  for (const Route& route : {route4(), route6()}) {
    send(route, 30, 1'000);
    expect_arrived(route, 30, 1'000);
  }
}

// Some kernels refuse lone packets to a socket that cuts, and a run that they wouldn't cut has gone as such.
TEST_F(Wire, LonePacketsDontTeachASocketToCut) {
  for (const Route& route : {route4(), route6()}) {
    const uint64_t cut = here_->sent().cut_by_socket;
    send(route, 2, 1'000);
    expect_arrived(route, 2, 1'000);
    for (int i = 0; i < 40; ++i) send(route, 1, 1'000);
    send(route, 2, 1'000);
    EXPECT_EQ(cut, here_->sent().cut_by_socket);
    Keeper keeper;
    ASSERT_TRUE(keeper.take(*there_, 42));
  }
}

// By then the sockets cut by themselves. Some kernels refuse that, others make the checksums.
TEST_F(Wire, ADeviceThatHasChecksumsNoMoreGetsRunsAndLonePacketsAllTheSame) {
  for (const Route& route : {route4(), route6()}) {
    send_forty_alike(route);
    ASSERT_TRUE(set_feature("here", "tx-checksum-ip-generic", false));
    for (const uint32_t packets : {1u, 30u, 1u}) {
      send(route, packets, 1'000);
      expect_arrived(route, packets, 1'000);
    }
    send(route, 1, 1'200);
    expect_arrived(route, 1, 1'200);
    ASSERT_TRUE(set_feature("here", "tx-checksum-ip-generic", true));
  }
}

// Whatever the socket would cut, a packet by itself is a plain datagram: longer, as long and shorter.
TEST_F(Wire, LonePacketsOfASocketThatCutsHaveIdZero) {
  ASSERT_TRUE(set_feature("here", "tx-udp-segmentation", false));
  for (const Route& route : {route4(), route6()}) {
    send_forty_alike(route);
    Listener listener(*host_);
    for (const size_t bytes : {64u, 1'000u, 1'004u, 1'200u}) {
      send(route, 1, bytes);
      const Bytes packet = listener.next();
      ASSERT_FALSE(packet.empty());
      EXPECT_TRUE(!route.to.ipv4() || id_of(packet) == 0) << bytes;
      EXPECT_TRUE(icrc_right(packet, 0)) << bytes;
      expect_arrived(route, 1, bytes);
    }
  }
}

// A socket says by itself what is asked of it again and again. Whatever it is used to, each packet has what
// its own route asks for.
TEST_F(Wire, EachPacketHasTheHopLimitAndTrafficClassOfItsRoute) {
  const auto hops = [](const Bytes& packet) {
    return std::to_integer<int>(packet[packet[0] == std::byte{0x45} ? 8 : 7]);
  };
  const auto traffic_class = [](const Bytes& packet) {
    return packet[0] == std::byte{0x45} ? std::to_integer<int>(packet[1])
                                        : roce::load_be<uint16_t>(&packet[0]) >> 4 & 0xff;
  };
  for (const bool recognised : {true, false})
    for (Route route : {route4(recognised), route6(recognised)}) {
      Listener listener(*host_);
      const auto expect = [&](uint8_t hop_limit, uint8_t asked_class, int times) {
        route.hop_limit = hop_limit;
        route.traffic_class = asked_class;
        for (int i = 0; i < times; ++i) {
          send(route, 1, 200);
          const Bytes packet = listener.next();
          ASSERT_FALSE(packet.empty());
          ASSERT_EQ(std::max<int>(hop_limit, 1), hops(packet)) << i;
          ASSERT_EQ(asked_class, traffic_class(packet)) << i;
        }
      };
      expect(64, 0, 20);
      expect(255, 0, 20);
      expect(64, 0, 1);
      expect(255, 0x6a, 20);
      expect(255, 0, 1);
      expect(0, 0x6a, 20);
      expect(1, 0x20, 1);
      expect(64, 0, 20);
    }
}

TEST_F(Wire, AnswersComeBack) {
  send(route4(), 1, 100);
  expect_arrived(route4(), 1, 100);
  Route back{.from = ipv4("10.5.0.2"), .to = ipv4("10.5.0.1"), .slot = {1}, .recognised = true};
  host_->in([&] {
    Transmitter transmitter(*there_);
    for (uint32_t i = 0; i < 10; ++i) transmit(transmitter, back, packet_of(1, i, 100));
    transmitter.flush();
  });
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*here_, 10));
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(keeper.icrc_fits(i));
}

}  // namespace
}  // namespace verbena::net
