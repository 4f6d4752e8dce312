// The invariant CRC against one made another way: bytes strung together as the annex says, zlib's CRC over
// them.
#include "roce/icrc.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <vector>

namespace verbena::roce {
namespace {

using Random = std::mt19937;

void put16(std::vector<uint8_t>& bytes, size_t value) {
  bytes.push_back(static_cast<uint8_t>(value >> 8));
  bytes.push_back(static_cast<uint8_t>(value));
}

uint32_t other_icrc(const Flow& flow, bool ipv4, uint16_t id, std::span<const std::byte> transport) {
  std::vector<uint8_t> bytes(8, 0xff);
  const size_t udp_length = 8 + transport.size() + 4;
  if (ipv4) {
    bytes.insert(bytes.end(), {0x45, 0xff});
    put16(bytes, 20 + udp_length);
    put16(bytes, id);
    bytes.insert(bytes.end(), {0x40, 0x00, 0xff, 17, 0xff, 0xff});
    bytes.insert(bytes.end(), flow.source.begin() + 12, flow.source.end());
    bytes.insert(bytes.end(), flow.destination.begin() + 12, flow.destination.end());
  } else {
    bytes.insert(bytes.end(), {0x6f, 0xff, 0xff, 0xff});
    put16(bytes, udp_length);
    bytes.insert(bytes.end(), {17, 0xff});
    bytes.insert(bytes.end(), flow.source.begin(), flow.source.end());
    bytes.insert(bytes.end(), flow.destination.begin(), flow.destination.end());
  }
  put16(bytes, flow.source_port);
  put16(bytes, flow.destination_port);
  put16(bytes, udp_length);
  put16(bytes, 0xffff);
  const size_t bth = bytes.size();
  for (const std::byte byte : transport) bytes.push_back(std::to_integer<uint8_t>(byte));
  bytes[bth + 4] = 0xff;
  uLong crc = crc32(0, nullptr, 0);
  for (const uint8_t& byte : bytes) crc = crc32(crc, &byte, 1);
  return static_cast<uint32_t>(crc);
}

Flow random_flow(Random& random, bool ipv4) {
  Flow flow;
  for (auto* address : {&flow.source, &flow.destination}) {
    for (uint8_t& byte : *address) byte = static_cast<uint8_t>(random());
    if (ipv4) {
      std::fill(address->begin(), address->begin() + 10, uint8_t{0});
      (*address)[10] = (*address)[11] = 0xff;
    }
  }
  flow.source_port = static_cast<uint16_t>(random());
  return flow;
}

// BTH to ICRC, with room for the latter.
std::vector<std::byte> random_packet(Random& random, size_t transport_words) {
  std::vector<std::byte> bytes(transport_words * 4 + kIcrcBytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Icrc, IsWhatTheAnnexSays) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const bool ipv4 = round % 2 == 0;
    const Flow flow = random_flow(random, ipv4);
    ASSERT_EQ(ipv4, flow.ipv4());
    auto packet = random_packet(random, 3 + random() % 300);
    const auto transport = std::span<const std::byte>(packet).first(packet.size() - kIcrcBytes);
    const auto id = static_cast<uint16_t>(random());
    const uint32_t expected = other_icrc(flow, ipv4, id, transport);
    ASSERT_EQ(expected, icrc(flow, id, transport));
    append_icrc(flow, id, packet);
    for (size_t i = 0; i < kIcrcBytes; ++i) {
      ASSERT_EQ(static_cast<std::byte>(expected >> 8 * i), packet[transport.size() + i]);
    }
    ASSERT_TRUE(icrc_fits(flow, IdRule::kAny, 0, packet));
    ASSERT_EQ(ipv4 ? id : 0, sent_id(flow, 0, packet));
  }
}

TEST(Icrc, OverIpv6LeavesNothingOpen) {
  Random random(2);
  const Flow flow = random_flow(random, false);
  auto packet = random_packet(random, 64);
  append_icrc(flow, 77, packet);
  for (const IdRule rule : {IdRule::kSegment, IdRule::kAny}) {
    EXPECT_TRUE(icrc_fits(flow, rule, 0, packet));
    EXPECT_TRUE(icrc_fits(flow, rule, 5, packet)) << "there's no ID for a segment's place to stand in";
    for (int trial = 0; trial < 200'000; ++trial) {
      auto& byte = packet[packet.size() - 1 - random() % 8];
      const std::byte before = byte;
      byte ^= static_cast<std::byte>(1 + random() % 255);
      ASSERT_FALSE(icrc_fits(flow, rule, 0, packet));
      byte = before;
    }
  }
}

TEST(Icrc, FindsEveryIdAtEveryLength) {
  Random random(3);
  const Flow flow = random_flow(random, true);
  auto packet = random_packet(random, 10);
  for (unsigned id = 0; id < 0x10000; ++id) {
    append_icrc(flow, static_cast<uint16_t>(id), packet);
    ASSERT_EQ(id, sent_id(flow, id % 3, packet));
  }
  // The longest: an MTU of 4096 behind a RETH and an immediate.
  for (size_t words = 3; words <= (4096 + 32) / 4; ++words) {
    packet = random_packet(random, words);
    const auto id = static_cast<uint16_t>(random());
    append_icrc(flow, id, packet);
    ASSERT_EQ(id, sent_id(flow, 0, packet)) << words;
  }
}

TEST(Icrc, OfARecognisedPeerMayHaveASegmentsPlaceAsId) {
  Random random(4);
  const Flow flow = random_flow(random, true);
  auto packet = random_packet(random, 20);
  for (unsigned id = 0; id < 0x10000; ++id) {
    append_icrc(flow, static_cast<uint16_t>(id), packet);
    for (const unsigned segment : {0u, id % 128, 127u}) {
      ASSERT_EQ(id < 128, icrc_fits(flow, IdRule::kSegment, segment, packet)) << id << " at " << segment;
      ASSERT_TRUE(icrc_fits(flow, IdRule::kAny, segment, packet)) << id << " at " << segment;
    }
  }
}

// How many of `trials` packets with a random ICRC are taken.
size_t taken(IdRule rule, size_t trials) {
  Random random(5);
  const Flow flow = random_flow(random, true);
  auto packet = random_packet(random, 6);
  size_t count = 0;
  for (size_t trial = 0; trial < trials; ++trial) {
    const uint32_t crc = static_cast<uint32_t>(random());
    for (size_t i = 0; i < kIcrcBytes; ++i)
      packet[packet.size() - 4 + i] = static_cast<std::byte>(crc >> 8 * i);
    count += icrc_fits(flow, rule, 0, packet);
  }
  return count;
}

TEST(Icrc, IsAsStrongAsWeSay) {
  // One in 2^16 of foreign packets, so 16 on average here; one in 2^25 of recognised ones.
  const size_t any = taken(IdRule::kAny, 1 << 20);
  EXPECT_GE(any, 4u);
  EXPECT_LE(any, 40u);
  EXPECT_LE(taken(IdRule::kSegment, 1 << 20), 1u);
}

TEST(Icrc, RefusesRuntsGiantsAndBrokenWords) {
  Random random(6);
  const Flow flow = random_flow(random, true);
  for (size_t length = 0; length < 16; ++length) {
    EXPECT_FALSE(icrc_fits(flow, IdRule::kAny, 0, std::vector<std::byte>(length)));
  }
  std::vector<std::byte> odd(33);
  append_icrc(flow, 0, odd);
  EXPECT_FALSE(icrc_fits(flow, IdRule::kAny, 0, odd));
  std::vector<std::byte> giant(60'000);
  append_icrc(flow, 1, giant);
  EXPECT_FALSE(icrc_fits(flow, IdRule::kAny, 0, giant));
}

TEST(Icrc, CoversAddressesAndPortsButNotWhatChangesOnTheWay) {
  Random random(7);
  const Flow flow = random_flow(random, true);
  auto packet = random_packet(random, 12);
  append_icrc(flow, 9, packet);
  for (size_t byte = 12; byte < 16; ++byte) {
    Flow other = flow;
    other.source[byte] ^= 1;
    EXPECT_FALSE(icrc_fits(other, IdRule::kAny, 0, packet));
    other = flow;
    other.destination[byte] ^= 1;
    EXPECT_FALSE(icrc_fits(other, IdRule::kAny, 0, packet));
  }
  Flow other = flow;
  other.source_port ^= 1;
  EXPECT_FALSE(icrc_fits(other, IdRule::kAny, 0, packet));
  packet[4] ^= std::byte{0xff};  // FECN and BECN
  EXPECT_TRUE(icrc_fits(flow, IdRule::kAny, 0, packet));
}

// Packets of one flow with these IDs and places are all taken, whatever was guessed from those before.
void expect_taken(FlowIcrc& flow, std::span<const std::pair<uint16_t, unsigned>> packets, Random& random) {
  for (const auto& [id, segment] : packets) {
    auto packet = random_packet(random, 3 + random() % 40);
    append_icrc(flow.flow(), id, packet);
    ASSERT_EQ(id, flow.sent_id(segment, packet)) << segment;
    ASSERT_EQ(id < kSegmentLimit, flow.fits(IdRule::kSegment, segment, packet)) << id << " at " << segment;
    packet[5 + random() % (packet.size() - 5)] ^= std::byte{1};
    ASSERT_FALSE(flow.fits(IdRule::kSegment, segment, packet)) << id << " at " << segment;
  }
}

TEST(Icrc, OfAFlowFindsIdsInAnyOrder) {
  Random random(8);
  FlowIcrc flow(random_flow(random, true));
  std::vector<std::pair<uint16_t, unsigned>> packets;
  for (uint16_t i = 0; i < 64; ++i) packets.emplace_back(i, i);       // merged
  for (uint16_t i = 0; i < 64; ++i) packets.emplace_back(i, i % 20);  // in pieces
  for (uint16_t i = 0; i < 64; ++i) packets.emplace_back(i, 0);       // not at all
  for (int i = 0; i < 50; ++i) packets.emplace_back(65'520 + i, 0);   // a foreign peer's count
  for (int i = 0; i < 300; ++i) packets.emplace_back(random(), random() % 64);
  expect_taken(flow, packets, random);
}

TEST(Icrc, OfAFlowIsThatOfEachPacketByItself) {
  Random random(9);
  for (int round = 0; round < 40; ++round) {
    const FlowIcrc flow(random_flow(random, round % 2 == 0));
    for (int i = 0; i < 20; ++i) {
      auto packet = random_packet(random, 3 + random() % 1'100);
      if (i % 2 == 0) packet[4] = {};
      const auto transport = std::span<const std::byte>(packet).first(packet.size() - kIcrcBytes);
      const auto id = static_cast<uint16_t>(random());
      ASSERT_EQ(other_icrc(flow.flow(), round % 2 == 0, id, transport), flow.icrc(id, transport));
    }
  }
}

TEST(Icrc, OfManyFlowsByTurns) {
  Random random(10);
  RecentFlows recent;
  std::vector<Flow> flows;
  for (int i = 0; i < 100; ++i) {
    flows.push_back(random_flow(random, i % 3 != 0));
    // One that differs in little, and has the same place.
    Flow other = flows.back();
    other.source[i % 15] ^= 1;
    flows.push_back(other);
  }
  for (int round = 0; round < 2'000; ++round) {
    const Flow& flow = flows[random() % flows.size()];
    auto packet = random_packet(random, 5);
    append_icrc(flow, 3, packet);
    ASSERT_TRUE(recent.of(flow).fits(IdRule::kSegment, 3, packet));
    ASSERT_EQ(flow, recent.of(flow).flow());
    packet[0] ^= std::byte{1};
    ASSERT_FALSE(recent.of(flow).fits(IdRule::kSegment, 3, packet));
  }
}

}  // namespace
}  // namespace verbena::roce
