#include "roce/grh.hpp"

#include <gtest/gtest.h>

#include "packets.hpp"
#include "support/pcap.hpp"

namespace verbena::roce {
namespace {

TEST(Grh, OverIpv4IsTheHeaderThatThePacketCameWith) {
  for (const auto& captured : test::golden_packets("ud_send.pcap")) {
    const auto grh = grh_of(captured.flow, {.traffic_class = 0, .limit = 64}, captured.bytes.size());
    EXPECT_TRUE(
        std::all_of(grh.begin(), grh.begin() + 20, [](std::byte byte) { return byte == std::byte{0}; }));
    // ID and checksum aside, which depends on it.
    auto expected = captured.ip_header;
    for (const size_t at : {4, 5, 10, 11}) expected[at] = grh[20 + at];
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), grh.begin() + 20)) << captured.where;
    EXPECT_EQ(std::byte{0}, grh[24]);
    EXPECT_EQ(std::byte{0}, grh[25]);
    unsigned sum = 0;
    for (size_t at = 20; at < 40; at += 2) {
      sum += std::to_integer<unsigned>(grh[at]) << 8 | std::to_integer<unsigned>(grh[at + 1]);
    }
    EXPECT_EQ(0xffffu, (sum & 0xffff) + (sum >> 16)) << "the checksum doesn't fit";
  }
}

TEST(Grh, OverIpv6IsTheIpHeader) {
  Flow flow;
  for (uint8_t i = 0; i < 16; ++i) {
    flow.source[i] = static_cast<uint8_t>(0x20 + i);
    flow.destination[i] = static_cast<uint8_t>(0x40 + i);
  }
  const auto grh = grh_of(flow, {.traffic_class = 0xab, .limit = 7, .flow_label = 0xfc1234}, 1000);
  const auto begin = bytes_of({0x6a, 0xbc, 0x12, 0x34, 1008 >> 8, 1008 & 0xff, 17, 7, 0x20, 0x21});
  EXPECT_TRUE(std::equal(begin.begin(), begin.end(), grh.begin()));
  EXPECT_EQ(std::byte{0x2f}, grh[23]);
  EXPECT_EQ(std::byte{0x40}, grh[24]);
  EXPECT_EQ(std::byte{0x4f}, grh[39]);
}

}  // namespace
}  // namespace verbena::roce
