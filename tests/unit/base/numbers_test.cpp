#include "base/numbers.hpp"

#include <gtest/gtest.h>

#include <array>

namespace verbena::base {
namespace {

TEST(Qpn, HasTheSlotInItsHighByteAndTheIndexBelow) {
  EXPECT_EQ(0x000001u, Qpn::make(kAgentSlot, 1).value);  // QP1 is the agent's
  EXPECT_EQ(0x2a1234u, Qpn::make(Slot{0x2a}, 0x1234).value);
  EXPECT_EQ(0xffffffu, Qpn::make(Slot{255}, 0xffff).value);  // multicast
}

TEST(Qpn, GivesBackEachSlotAndFits24BitsAtBothEndsOfTheIndex) {
  for (unsigned slot = 0; slot < 256; ++slot)
    for (const uint16_t index : std::to_array<uint16_t>({0, 1, 0x7fff, 0x8000, 0xffff})) {
      const Qpn qpn = Qpn::make(Slot{static_cast<uint8_t>(slot)}, index);
      EXPECT_EQ(slot, qpn.slot().value);
      EXPECT_EQ(index, qpn.value & 0xffff);
      EXPECT_EQ(0u, qpn.value >> 24);
    }
}

TEST(Qpn, TakesItsSlotFrom24BitsOnly) { EXPECT_EQ(0x2a, Qpn{0xff2a1234}.slot().value); }

TEST(Slot, ProcessSlotsAre1To250) {
  EXPECT_EQ(1u, kFirstProcessSlot);
  EXPECT_EQ(250u, kLastProcessSlot);
  EXPECT_EQ(251u, kSteeredSlots);  // with the agent's own
}

TEST(Slot, IsOrderedByNumber) {
  EXPECT_LT(Slot{3}, Slot{4});
  EXPECT_EQ(Slot{0}, kAgentSlot);
}

}  // namespace
}  // namespace verbena::base
