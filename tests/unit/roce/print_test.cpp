#include "roce/print.hpp"

#include <gtest/gtest.h>

#include "packets.hpp"

namespace verbena::roce {
namespace {

TEST(Print, SaysAPacketInOneLine) {
  const std::vector<std::byte> payload(24);
  Packet packet;
  packet.bth.destination = {0x010203};
  packet.bth.psn = {17};
  packet.bth.ack_request = true;
  packet.payload = payload;
  EXPECT_EQ("RC SendOnly qp 0x010203 psn 17 ack 24 B", to_line(packet));

  packet.bth.operation = Operation::kWriteOnlyImm;
  packet.bth.solicited = true;
  packet.reth = {0x7f0000001000, 0x1234, 24};
  packet.imm = 5;
  EXPECT_EQ(
      "RC WriteOnlyImm qp 0x010203 psn 17 ack solicited at 0x7f0000001000 rkey 0x00001234 length 24 "
      "imm 0x00000005 24 B",
      to_line(packet));
}

TEST(Print, SaysAcknowledgementsAndDatagrams) {
  Packet packet;
  packet.bth.operation = Operation::kAcknowledge;
  packet.aeth = {syndrome::kRnr | 14, 3};
  EXPECT_EQ("RC Acknowledge qp 0x000000 psn 0 RNR timer 14 msn 3", to_line(packet));
  packet.aeth = {syndrome::kNoCredits, 4};
  EXPECT_EQ("RC Acknowledge qp 0x000000 psn 0 ACK msn 4", to_line(packet));

  packet.bth.service = Service::kUd;
  packet.bth.operation = Operation::kSendOnly;
  packet.deth = {0x80010000, {1}};
  packet.bth.pkey = 0x7fff;
  EXPECT_EQ("UD SendOnly qp 0x000000 psn 0 pkey 0x7fff from 0x000001 qkey 0x80010000 0 B", to_line(packet));
}

TEST(Print, NamesTheSharedQueueOfXrc) {
  Packet packet;
  packet.bth.service = Service::kXrc;
  packet.xrc_srq = 0x030007;
  EXPECT_EQ("XRC SendOnly qp 0x000000 psn 0 srq 0x030007 0 B", to_line(packet));
}

TEST(Print, SaysWhatItDoesNotKnow) {
  Packet packet;
  packet.bth.service = Service::kRd;
  EXPECT_EQ("opcode 0x44 qp 0x000000 psn 0", to_line(packet));
  EXPECT_EQ("syndrome 0x7f", syndrome_text(0x7f));
}

TEST(Print, NamesEachSyndromeOfTheStandard) {
  EXPECT_EQ("ACK credits 0", syndrome_text(0x00));
  EXPECT_EQ("NAK sequence", syndrome_text(0x60));
  EXPECT_EQ("NAK invalid request", syndrome_text(0x61));
  EXPECT_EQ("NAK remote access", syndrome_text(0x62));
  EXPECT_EQ("NAK operational", syndrome_text(0x63));
}

TEST(Print, NamesEachKnownOpcode) {
  for (const uint8_t opcode : known_opcodes()) {
    Packet packet;
    packet.bth.service = static_cast<Service>(opcode >> 5);
    packet.bth.operation = static_cast<Operation>(opcode & 0x1f);
    EXPECT_EQ(std::string::npos, to_line(packet).find('?')) << unsigned{opcode};
  }
}

}  // namespace
}  // namespace verbena::roce
