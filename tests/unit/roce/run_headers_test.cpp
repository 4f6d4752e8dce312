#include "roce/run_headers.hpp"

#include <gtest/gtest.h>

#include "packets.hpp"
#include "roce/codec.hpp"

namespace verbena::roce {
namespace {

constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> headers_of(const Packet& packet) {
  std::vector<std::byte> headers(kMostHeaderBytes, kUntouched);
  headers.resize(emit_headers(packet, 0, headers));
  return headers;
}

// In bytes as in values.
TEST(RunHeaders, AreThoseOfThePacketsOfARun) {
  for (const uint8_t opcode : known_opcodes()) {
    Packet packet;
    packet.bth = {.service = static_cast<Service>(opcode >> 5),
                  .operation = static_cast<Operation>(opcode & 0x1f),
                  .destination = {0x010203},
                  .ack_request = opcode % 2 == 0,
                  .psn = {0xfffffe}};
    if (packet.bth.opcode() == kCnpOpcode) continue;
    packet.xrc_srq = 0x040506;
    packet.reth = {0xfffffffffffff000, 0x11121314, 8192};
    packet.aeth = {0x1f, 0xffffff};
    const auto first = headers_of(packet);
    RunHeaders run(first, 4096);
    EXPECT_EQ(first.size(), run.bytes());
    for (int i = 0; i < 4; ++i) {
      std::array<std::byte, kMostHeaderBytes> next;
      next.fill(kUntouched);
      run.next(next);
      next_in_run(packet, 4096);
      const auto expected = headers_of(packet);
      EXPECT_TRUE(std::ranges::equal(expected, std::span(next).first(expected.size())))
          << +opcode << ", " << i;
    }
  }
}

}  // namespace
}  // namespace verbena::roce
