// Psn: a packet's number within its queue pair, 24 bits, which go round.
#pragma once

#include <cstdint>

namespace verbena::base {

struct Psn {
  uint32_t value = 0;  // below 2^24

  static constexpr uint32_t kMask = 0xffffff;
  bool operator==(const Psn&) const = default;
  constexpr Psn operator+(uint32_t count) const { return {(value + count) & kMask}; }
  // How many steps from `earlier` to this one, going round: below 2^23 means at or after it, from there on
  // means before it (IBA 9.7.1: half of the numbers are the past).
  [[nodiscard]] constexpr uint32_t since(Psn earlier) const { return (value - earlier.value) & kMask; }
  [[nodiscard]] constexpr bool before(Psn other) const { return since(other) > kMask / 2; }
};

}  // namespace verbena::base
