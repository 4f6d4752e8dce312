// End-to-end credits: the 5 bits of an acknowledgement that tell how many receives are posted (IBA table 45).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "roce/packet.hpp"

namespace verbena::engine {

inline constexpr std::array<uint32_t, 31> kCreditCounts{
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

inline constexpr uint32_t kCreditsUncounted = UINT32_MAX;

// The largest count that isn't more than what is there: two of them have their highest bit in the same place.
[[nodiscard]] constexpr uint8_t credit_code(uint32_t receives) {
  if (receives == kCreditsUncounted) return roce::syndrome::kNoCredits;
  if (receives < 2) return static_cast<uint8_t>(receives);
  const uint32_t counted = std::min(receives, kCreditCounts.back());
  const auto below_highest = static_cast<unsigned>(std::bit_width(counted)) - 2;
  return static_cast<uint8_t>(2 * below_highest + (counted >> below_highest));
}

[[nodiscard]] constexpr uint32_t credits_of(uint8_t code) {
  return (code & 0x1f) == roce::syndrome::kNoCredits ? kCreditsUncounted : kCreditCounts[code & 0x1f];
}

}  // namespace verbena::engine
