#include "roce/codec.hpp"

#include <gtest/gtest.h>

#include "packets.hpp"

namespace verbena::roce {
namespace {

std::vector<std::byte> emitted(const Packet& packet) {
  std::vector<std::byte> bytes(512, std::byte{0xee});
  bytes.resize(emit(packet, bytes));
  return bytes;
}

ParseError error_of(const std::vector<std::byte>& bytes) {
  const auto parsed = parse(bytes);
  EXPECT_FALSE(parsed);
  return parsed ? ParseError{} : parsed.error();
}

TEST(Codec, PutsEachFieldOfTheBthInItsPlace) {
  Packet packet;
  packet.bth = {.service = Service::kUc,
                .operation = Operation::kSendLast,
                .solicited = true,
                .migrated = false,
                .pkey = 0x8001,
                .fecn = true,
                .becn = false,
                .destination = {0x010203},
                .ack_request = true,
                .psn = {0xa0b0c0}};
  const auto payload = bytes_of({1, 2, 3, 4, 5});
  packet.payload = payload;
  EXPECT_EQ(bytes_of({0x22, 0xb0, 0x80, 0x01, 0x80, 1, 2, 3, 0x80, 0xa0, 0xb0, 0xc0, 1, 2, 3, 4, 5, 0, 0, 0}),
            emitted(packet));
}

TEST(Codec, PutsHeadersInTheOrderOfTheStandard) {
  Packet packet;
  packet.bth.operation = Operation::kWriteOnlyImm;
  packet.reth = {0x0102030405060708, 0x11121314, 0};
  packet.imm = 0xcafe0001;
  EXPECT_EQ(bytes_of({0x0b, 0x40, 0xff, 0xff, 0,    0,    0,    0,    0, 0, 0, 0, 1,    2,    3, 4,
                      5,    6,    7,    8,    0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0, 0xca, 0xfe, 0, 1}),
            emitted(packet));

  packet.bth.operation = Operation::kAtomicAcknowledge;
  packet.aeth = {syndrome::kNoCredits, 0x030201};
  packet.atomic_before = 7;
  EXPECT_EQ(bytes_of({0x12, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x1f, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 7}),
            emitted(packet));
}

// Annex A14: right after the BTH, the upper byte reserved.
TEST(Codec, NamesTheSharedQueueOfXrcBeforeOtherHeaders) {
  Packet packet;
  packet.bth.service = Service::kXrc;
  packet.bth.operation = Operation::kReadRequest;
  packet.xrc_srq = 0x030507;
  packet.reth = {0x0102030405060708, 0x11121314, 9};
  const auto bytes = emitted(packet);
  EXPECT_EQ(bytes_of({0xac, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0,    0,    0,    0,    0, 3, 5, 7,
                      1,    2,    3,    4,    5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 9}),
            bytes);
  const auto parsed = parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(0x030507u, parsed->xrc_srq);
  EXPECT_EQ(packet.reth, parsed->reth);
}

TEST(Codec, NotifiesOfCongestionWithSixteenZeros) {
  Packet packet;
  packet.bth.service = Service::kCnp;
  packet.bth.operation = static_cast<Operation>(kCnpOpcode & 0x1f);
  packet.bth.becn = true;
  const auto bytes = emitted(packet);
  ASSERT_EQ(28u, bytes.size());
  EXPECT_EQ(std::byte{0x81}, bytes[0]);
  EXPECT_TRUE(
      std::all_of(bytes.begin() + 12, bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(parse(bytes));
}

TEST(Codec, EmitSaysWhenThereIsNoRoom) {
  const auto payload = bytes_of({1, 2, 3});
  Packet packet;
  packet.payload = payload;
  std::array<std::byte, 16> room{};
  EXPECT_EQ(16u, emit(packet, room));
  EXPECT_EQ(0u, emit(packet, std::span(room).first(15)));
}

TEST(Codec, HeadersAloneTakeThePadThatTheyAreGiven) {
  Packet packet;
  std::array<std::byte, 12> room{};
  EXPECT_EQ(12u, emit_headers(packet, 3, room));
  EXPECT_EQ(std::byte{0x70}, room[1]);
}

TEST(Codec, RefusesWhatIsTooShort) {
  for (const uint8_t opcode : known_opcodes()) {
    std::vector<std::byte> bytes(opcode_info(opcode).header_bytes);
    bytes[0] = std::byte{opcode};
    EXPECT_TRUE(parse(bytes)) << "opcode " << unsigned{opcode};
    while (!bytes.empty()) {
      bytes.pop_back();
      EXPECT_EQ(ParseError::kTooShort, error_of(bytes)) << "opcode " << unsigned{opcode};
    }
  }
}

TEST(Codec, RefusesOtherVersionsAndOpcodes) {
  auto bytes = emitted(Packet{});
  for (unsigned version = 1; version < 16; ++version) {
    bytes[1] = static_cast<std::byte>(version);
    EXPECT_EQ(ParseError::kBadVersion, error_of(bytes));
  }
  bytes[1] = std::byte{0};
  bytes[0] = std::byte{0x15};
  EXPECT_EQ(ParseError::kBadOpcode, error_of(bytes));
  bytes[0] = std::byte{0x44};  // RD
  EXPECT_EQ(ParseError::kBadOpcode, error_of(bytes));
}

TEST(Codec, RefusesLengthsThatCannotBe) {
  for (const uint8_t opcode : known_opcodes()) {
    const OpcodeInfo& info = opcode_info(opcode);
    std::vector<std::byte> bytes(info.header_bytes);
    bytes[0] = std::byte{opcode};
    for (unsigned extra = 1; extra <= 8; ++extra) {
      bytes.push_back(std::byte{0});
      const bool fine = info.payload && extra % 4 == 0;
      EXPECT_EQ(fine, parse(bytes).has_value()) << "opcode " << unsigned{opcode} << " and " << extra;
      if (!fine) {
        EXPECT_EQ(ParseError::kBadLength, error_of(bytes));
      }
    }
  }
}

TEST(Codec, RefusesPaddingWithoutPayload) {
  for (const uint8_t opcode : known_opcodes()) {
    std::vector<std::byte> bytes(opcode_info(opcode).header_bytes);
    bytes[0] = std::byte{opcode};
    bytes[1] = std::byte{0x10};
    EXPECT_EQ(ParseError::kBadPad, error_of(bytes)) << "opcode " << unsigned{opcode};
  }
}

TEST(Codec, IgnoresReservedBits) {
  auto bytes = emitted(Packet{});
  const auto plain = parse(bytes);
  bytes[4] |= std::byte{0x3f};
  bytes[8] |= std::byte{0x7f};
  const auto marked = parse(bytes);
  ASSERT_TRUE(plain && marked);
  EXPECT_TRUE(same(*plain, *marked));
}

}  // namespace
}  // namespace verbena::roce
