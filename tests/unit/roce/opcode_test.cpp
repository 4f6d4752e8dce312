#include "roce/opcode.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace verbena::roce {
namespace {

// All of an entry's flags, in the order of the struct.
std::string flags_of(const OpcodeInfo& info) {
  std::string text;
  const auto add = [&text](bool set, const char* name) {
    if (set) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(info.request, "request");
  add(info.response, "response");
  add(info.first, "first");
  add(info.last, "last");
  add(info.send, "send");
  add(info.write, "write");
  add(info.read_response, "read_response");
  add(info.atomic, "atomic");
  add(info.atomic_write, "atomic_write");
  add(info.xrc_eth, "+xrc_eth");
  add(info.reth, "+reth");
  add(info.atomic_eth, "+atomic_eth");
  add(info.aeth, "+aeth");
  add(info.atomic_ack_eth, "+atomic_ack_eth");
  add(info.deth, "+deth");
  add(info.imm, "+imm");
  add(info.ieth, "+ieth");
  add(info.payload, "payload");
  return text;
}

struct Row {
  unsigned header_bytes;
  std::string flags;
};

// Written down from IBA table 38 and the header formats of 9.2 and 9.3, not from the code under test.
const std::map<unsigned, Row> kExpected{
    {0x00, {12, "request first send payload"}},
    {0x01, {12, "request send payload"}},
    {0x02, {12, "request last send payload"}},
    {0x03, {16, "request last send +imm payload"}},
    {0x04, {12, "request first last send payload"}},
    {0x05, {16, "request first last send +imm payload"}},
    {0x06, {28, "request first write +reth payload"}},
    {0x07, {12, "request write payload"}},
    {0x08, {12, "request last write payload"}},
    {0x09, {16, "request last write +imm payload"}},
    {0x0a, {28, "request first last write +reth payload"}},
    {0x0b, {32, "request first last write +reth +imm payload"}},
    {0x0c, {28, "request first last +reth"}},
    {0x0d, {16, "response first read_response +aeth payload"}},
    {0x0e, {12, "response read_response payload"}},
    {0x0f, {16, "response last read_response +aeth payload"}},
    {0x10, {16, "response first last read_response +aeth payload"}},
    {0x11, {16, "response +aeth"}},
    {0x12, {24, "response +aeth +atomic_ack_eth"}},
    {0x13, {40, "request first last atomic +atomic_eth"}},
    {0x14, {40, "request first last atomic +atomic_eth"}},
    {0x16, {16, "request last send +ieth payload"}},
    {0x17, {16, "request first last send +ieth payload"}},
    {0x1d, {28, "request first last atomic_write +reth payload"}},
    {0x20, {12, "request first send payload"}},
    {0x21, {12, "request send payload"}},
    {0x22, {12, "request last send payload"}},
    {0x23, {16, "request last send +imm payload"}},
    {0x24, {12, "request first last send payload"}},
    {0x25, {16, "request first last send +imm payload"}},
    {0x26, {28, "request first write +reth payload"}},
    {0x27, {12, "request write payload"}},
    {0x28, {12, "request last write payload"}},
    {0x29, {16, "request last write +imm payload"}},
    {0x2a, {28, "request first last write +reth payload"}},
    {0x2b, {32, "request first last write +reth +imm payload"}},
    {0x64, {20, "request first last send +deth payload"}},
    {0x65, {24, "request first last send +deth +imm payload"}},
    {0x81, {28, ""}},
    {0xa0, {16, "request first send +xrc_eth payload"}},
    {0xa1, {16, "request send +xrc_eth payload"}},
    {0xa2, {16, "request last send +xrc_eth payload"}},
    {0xa3, {20, "request last send +xrc_eth +imm payload"}},
    {0xa4, {16, "request first last send +xrc_eth payload"}},
    {0xa5, {20, "request first last send +xrc_eth +imm payload"}},
    {0xa6, {32, "request first write +xrc_eth +reth payload"}},
    {0xa7, {16, "request write +xrc_eth payload"}},
    {0xa8, {16, "request last write +xrc_eth payload"}},
    {0xa9, {20, "request last write +xrc_eth +imm payload"}},
    {0xaa, {32, "request first last write +xrc_eth +reth payload"}},
    {0xab, {36, "request first last write +xrc_eth +reth +imm payload"}},
    {0xac, {32, "request first last +xrc_eth +reth"}},
    {0xad, {16, "response first read_response +aeth payload"}},
    {0xae, {12, "response read_response payload"}},
    {0xaf, {16, "response last read_response +aeth payload"}},
    {0xb0, {16, "response first last read_response +aeth payload"}},
    {0xb1, {16, "response +aeth"}},
    {0xb2, {24, "response +aeth +atomic_ack_eth"}},
    {0xb3, {44, "request first last atomic +xrc_eth +atomic_eth"}},
    {0xb4, {44, "request first last atomic +xrc_eth +atomic_eth"}},
    {0xb6, {20, "request last send +xrc_eth +ieth payload"}},
    {0xb7, {20, "request first last send +xrc_eth +ieth payload"}},
};

TEST(OpcodeTable, SaysOfEachOfThe256WhatTheStandardDoes) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = opcode_info(static_cast<uint8_t>(opcode));
    const auto expected = kExpected.find(opcode);
    EXPECT_EQ(expected != kExpected.end(), info.known) << "opcode " << opcode;
    EXPECT_EQ(expected == kExpected.end() ? "" : expected->second.flags, flags_of(info))
        << "opcode " << opcode;
    EXPECT_EQ(expected == kExpected.end() ? 0 : expected->second.header_bytes, info.header_bytes)
        << "opcode " << opcode;
  }
}

TEST(OpcodeTable, NamesGiveTheOpcodesOfTheWire) {
  EXPECT_EQ(0x04, opcode_of(Service::kRc, Operation::kSendOnly));
  EXPECT_EQ(0x17, opcode_of(Service::kRc, Operation::kSendOnlyInvalidate));
  EXPECT_EQ(0x2a, opcode_of(Service::kUc, Operation::kWriteOnly));
  EXPECT_EQ(0x64, opcode_of(Service::kUd, Operation::kSendOnly));
  EXPECT_EQ(0xa4, opcode_of(Service::kXrc, Operation::kSendOnly));
  EXPECT_EQ(0xad, opcode_of(Service::kXrc, Operation::kReadResponseFirst));
  EXPECT_EQ(0xb1, opcode_of(Service::kXrc, Operation::kAcknowledge));
  EXPECT_EQ(0xb2, opcode_of(Service::kXrc, Operation::kAtomicAcknowledge));
}

}  // namespace
}  // namespace verbena::roce
