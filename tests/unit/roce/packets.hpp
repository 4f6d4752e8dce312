// Packets for the tests of the codec.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "roce/packet.hpp"

namespace verbena::roce {

inline std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

inline bool same(const Packet& a, const Packet& b) {
  return a.bth == b.bth && a.xrc_srq == b.xrc_srq && a.reth == b.reth && a.atomic == b.atomic &&
         a.aeth == b.aeth && a.atomic_before == b.atomic_before && a.deth == b.deth && a.imm == b.imm &&
         a.invalidate_key == b.invalidate_key && std::ranges::equal(a.payload, b.payload);
}

inline std::vector<uint8_t> known_opcodes() {
  std::vector<uint8_t> known;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (opcode_info(static_cast<uint8_t>(opcode)).known) known.push_back(static_cast<uint8_t>(opcode));
  }
  return known;
}

}  // namespace verbena::roce
