// Numbers with a meaning: a slot and a queue pair number are never bare integers.
#pragma once

#include <compare>
#include <cstdint>

namespace verbena::base {

// A process's place on its host (DESIGN 2.2): the high 8 bits of each of its queue pair numbers.
struct Slot {
  uint8_t value = 0;
  auto operator<=>(const Slot&) const = default;
};

inline constexpr Slot kAgentSlot{0};  // the agent's own: QP1 lands here
inline constexpr unsigned kFirstProcessSlot = 1;
inline constexpr unsigned kMaxProcessSlots = 250;  // 251 to 254 stay free for services of the agent
inline constexpr unsigned kLastProcessSlot = kFirstProcessSlot + kMaxProcessSlots - 1;
inline constexpr unsigned kSteeredSlots = kLastProcessSlot + 1;  // slots with a socket: 0 to 250
// Slot 255 is never given out: multicast's QPN is 0xFFFFFF.

struct Qpn {
  uint32_t value = 0;  // 24 bits
  auto operator<=>(const Qpn&) const = default;

  static constexpr Qpn make(Slot slot, uint16_t index) {
    return {static_cast<uint32_t>(slot.value) << 16 | index};
  }
  [[nodiscard]] constexpr Slot slot() const { return {static_cast<uint8_t>(value >> 16)}; }
};

}  // namespace verbena::base
