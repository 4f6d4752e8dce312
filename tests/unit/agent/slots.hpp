// A registry of its own for each test, and shorthands for what the tests ask of a SlotTable.
#pragma once

#include <gtest/gtest.h>

#include "agent/slot_table.hpp"

namespace verbena::agent {

using arena::SlotState;
using base::Instant;
using base::milliseconds;
using base::seconds;
using base::Slot;

inline constexpr Instant kStart{1'000'000'000};

inline Slot slot_at(unsigned number) { return {static_cast<uint8_t>(number)}; }

inline Owner process(uint32_t pid) { return {.pid = pid, .start_ticks = pid * 7u, .uid = 1000, .view = 3}; }
inline Owner agent_of(uint32_t uid) { return {.pid = 5000 + uid, .start_ticks = uid, .uid = uid, .view = 0}; }

class SlotTableTest : public testing::Test {
 protected:
  unsigned claim(uint32_t pid, Instant now = kStart) {
    const auto claim = table_.claim(now, process(pid));
    EXPECT_TRUE(claim) << claim.error().sentence;
    return claim ? claim->slot.value : 0;
  }
  void claim_all() {
    for (unsigned i = 0; i < base::kMaxProcessSlots; ++i) claim(100 + i);
  }
  SlotState state(unsigned slot) { return table_.word(slot_at(slot)).state; }

  arena::Registry registry_ = std::move(arena::Registry::create("test")->second);
  SlotTable table_{registry_, 0};
};

}  // namespace verbena::agent
