// What holds of the codec for all packets and all bytes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "packets.hpp"
#include "roce/codec.hpp"
#include "roce/print.hpp"

namespace verbena::roce {
namespace {

uint32_t low24() { return *rc::gen::arbitrary<uint32_t>() & 0xffffff; }

template <typename T>
T any() {
  return *rc::gen::arbitrary<T>();
}

// A packet of a known opcode whose other headers are as made; its payload lies in `payload`.
Packet any_packet(std::vector<std::byte>& payload) {
  Packet packet;
  const uint8_t opcode = *rc::gen::elementOf(known_opcodes());
  const OpcodeInfo& info = opcode_info(opcode);
  packet.bth = {.service = static_cast<Service>(opcode >> 5),
                .operation = static_cast<Operation>(opcode & 0x1f),
                .solicited = any<bool>(),
                .migrated = any<bool>(),
                .pkey = any<uint16_t>(),
                .fecn = any<bool>(),
                .becn = any<bool>(),
                .destination = {low24()},
                .ack_request = any<bool>(),
                .psn = {low24()}};
  if (info.xrc_eth) packet.xrc_srq = low24();
  if (info.reth) packet.reth = {any<uint64_t>(), any<uint32_t>(), any<uint32_t>()};
  if (info.atomic_eth) packet.atomic = {any<uint64_t>(), any<uint32_t>(), any<uint64_t>(), any<uint64_t>()};
  if (info.aeth) packet.aeth = {any<uint8_t>(), low24()};
  if (info.atomic_ack_eth) packet.atomic_before = any<uint64_t>();
  if (info.deth) packet.deth = {any<uint32_t>(), {low24()}};
  if (info.imm) packet.imm = any<uint32_t>();
  if (info.ieth) packet.invalidate_key = any<uint32_t>();
  if (info.payload) {
    for (const auto value : any<std::vector<uint8_t>>()) payload.push_back(std::byte{value});
    packet.payload = payload;
    packet.bth.pad = static_cast<uint8_t>(-payload.size() & 3);
  }
  return packet;
}

RC_GTEST_PROP(CodecProperty, ParseUndoesEmit, ()) {
  std::vector<std::byte> payload;
  const Packet packet = any_packet(payload);
  std::vector<std::byte> bytes(1024, std::byte{0xee});
  const size_t length = emit(packet, bytes);
  RC_ASSERT(length == packet.info().header_bytes + payload.size() + packet.bth.pad);
  RC_ASSERT(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(length), bytes.end(),
                        [](std::byte byte) { return byte == std::byte{0xee}; }));
  const auto parsed = parse(std::span(bytes).first(length));
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(same(packet, *parsed));
  RC_ASSERT(!to_line(*parsed).empty());

  std::vector<std::byte> headers(packet.info().header_bytes);
  RC_ASSERT(emit_headers(packet, packet.bth.pad, headers) == headers.size());
  RC_ASSERT(std::equal(headers.begin(), headers.end(), bytes.begin()));
}

// Clears what a packet's value doesn't keep: reserved bits and the padding's content.
void clear_unkept(std::vector<std::byte>& bytes, const Packet& packet) {
  bytes[4] &= std::byte{0xc0};
  bytes[8] &= std::byte{0x80};
  if (packet.info().deth) bytes[16] = std::byte{0};
  if (packet.info().xrc_eth) bytes[12] = std::byte{0};
  std::fill(bytes.end() - packet.bth.pad, bytes.end(), std::byte{0});
  if (packet.bth.opcode() == kCnpOpcode) std::fill(bytes.begin() + 12, bytes.end(), std::byte{0});
}

// Whether the bytes parsed; if they did, they come out again.
bool parses_and_returns(std::vector<std::byte> bytes) {
  const auto parsed = parse(bytes);
  if (!parsed) return false;
  std::vector<std::byte> again(bytes.size());
  EXPECT_EQ(bytes.size(), emit(*parsed, again));
  clear_unkept(bytes, *parsed);
  EXPECT_EQ(bytes, again);
  return true;
}

TEST(CodecProperty, RandomBytesThatParseAreEmittedAgain) {
  std::mt19937 random(1);
  const auto known = known_opcodes();
  size_t parsed = 0;
  constexpr size_t kTrials = 100'000;
  for (size_t trial = 0; trial < kTrials && !testing::Test::HasFailure(); ++trial) {
    std::vector<std::byte> bytes(random() % 80);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // Without a hint hardly any input would get past the opcode, the version and the length.
    if (bytes.size() >= 2 && trial % 8 != 0) {
      bytes[0] = std::byte{known[random() % known.size()]};
      bytes[1] &= std::byte{0xf0};
      bytes.resize(bytes.size() & ~size_t{3});
    }
    parsed += parses_and_returns(std::move(bytes));
  }
  EXPECT_GT(parsed, kTrials / 4);
  EXPECT_LT(parsed, kTrials);
}

}  // namespace
}  // namespace verbena::roce
