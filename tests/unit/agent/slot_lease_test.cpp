#include "agent/slot_table.hpp"
#include "slots.hpp"

namespace verbena::agent {
namespace {

constexpr SlotRange kAny{0, 0};

class Lease : public SlotTableTest {
 protected:
  base::Result<SlotRange> lease(SlotRange wanted, uint32_t uid) {
    return table_.lease(wanted, agent_of(uid));
  }
  void expect_leased(SlotRange range, uint32_t uid) {
    for (unsigned slot = range.first; slot < range.first + range.count; ++slot) {
      EXPECT_EQ(SlotState::kLeased, state(slot)) << slot;
      EXPECT_EQ(uid, table_.owner(slot_at(slot)).uid) << slot;
    }
  }
};

TEST_F(Lease, OfAnySizeIs32SlotsFromTheTop) {
  EXPECT_EQ((SlotRange{219, 32}), *lease(kAny, 1001));
  expect_leased({219, 32}, 1001);
  EXPECT_EQ((SlotRange{187, 32}), *lease(kAny, 1002));
  expect_leased({187, 32}, 1002);
  EXPECT_EQ(64u, table_.in_state(SlotState::kLeased).size());
}

TEST_F(Lease, SlotsAreNotGivenToProcesses) {
  ASSERT_TRUE(lease(kAny, 1001));
  for (unsigned i = 0; i < 250 - 32; ++i) EXPECT_LT(claim(i + 1), 219u);
  EXPECT_EQ(ENOMEM, table_.claim(kStart, process(1)).error().code);
}

TEST_F(Lease, IsSmallerWhereNo32FreeSlotsAreInARow) {
  for (unsigned slot = 20; slot <= 250; slot += 20) {
    table_.limit_to({slot, 1});
    claim(slot);
  }
  EXPECT_EQ((SlotRange{224, 16}), *lease(kAny, 1001));  // 221 to 239 are free
}

TEST_F(Lease, TakesTheLastSlotThereIs) {
  claim_all();
  table_.release(slot_at(1), kStart, {});
  EXPECT_EQ((SlotRange{1, 1}), *lease(kAny, 1001));
  EXPECT_EQ(ENOMEM, lease(kAny, 1002).error().code);
}

TEST_F(Lease, NeverIncludesSlotsInQuarantine) {
  table_.limit_to({240, 1});
  claim(1);
  table_.release(slot_at(240), kStart, seconds(4));
  EXPECT_EQ((SlotRange{208, 32}), *lease(kAny, 1001));
  EXPECT_EQ(EBUSY, lease({240, 1}, 1001).error().code);
}

TEST_F(Lease, OfAnExactRangeIsThatOrNothing) {
  EXPECT_EQ((SlotRange{10, 5}), *lease({10, 5}, 1001));
  expect_leased({10, 5}, 1001);
  table_.limit_to({22, 1});
  claim(1);
  const auto refused = lease({20, 5}, 1001);
  ASSERT_FALSE(refused);
  EXPECT_EQ(EBUSY, refused.error().code);
  EXPECT_EQ("slot 22 is in use", refused.error().sentence);
  for (const unsigned slot : {20, 21, 23, 24}) EXPECT_EQ(SlotState::kFree, state(slot)) << slot;
}

TEST_F(Lease, OfSlotsThatDoNotExistIsRefused) {
  for (const auto& range : {SlotRange{0, 1}, SlotRange{251, 1}, SlotRange{250, 2}, SlotRange{1, 251},
                            SlotRange{2, ~0u}, SlotRange{~0u, 2}, SlotRange{0, ~0u}}) {
    const auto refused = lease(range, 1001);
    ASSERT_FALSE(refused) << range.first << "+" << range.count;
    EXPECT_EQ(EINVAL, refused.error().code);
  }
  EXPECT_TRUE(table_.in_state(SlotState::kLeased).empty());
}

TEST_F(Lease, IsRenewedForTheSameUserOnly) {
  const auto first = *lease(kAny, 1001);
  EXPECT_EQ(first, *lease(first, 1001));
  expect_leased(first, 1001);
  EXPECT_EQ(EBUSY, lease(first, 1002).error().code);
  EXPECT_EQ(EBUSY, lease({first.first, 1}, 1002).error().code);
  expect_leased(first, 1001);
}

TEST_F(Lease, IsRenewedInPartAndBeyond) {
  ASSERT_TRUE(lease({100, 10}, 1001));
  EXPECT_TRUE(lease({103, 2}, 1001));
  EXPECT_TRUE(lease({105, 10}, 1001));
  expect_leased({100, 15}, 1001);
  ASSERT_TRUE(lease({116, 4}, 1002));
  EXPECT_EQ(EBUSY, lease({110, 10}, 1001).error().code);
}

TEST_F(Lease, IsNotGivenOverAProcessThatHoldsASlot) {
  const unsigned slot = claim(1);
  EXPECT_EQ(EBUSY, lease({slot, 1}, process(1).uid).error().code);  // not even of the same user
  EXPECT_EQ(SlotState::kActive, state(slot));
}

TEST_F(Lease, EndsWithAQuarantine) {
  const auto range = *lease(kAny, 1001);
  table_.end_lease(range, kStart, seconds(2));
  EXPECT_EQ(32u, table_.in_state(SlotState::kQuarantined).size());
  EXPECT_EQ(kStart + seconds(2), table_.next_deadline());
  EXPECT_EQ((SlotRange{187, 32}), *lease(kAny, 1002));
  table_.expire(kStart + seconds(2));
  EXPECT_EQ(range, *lease(range, 1003));
}

TEST_F(Lease, EndedWithoutTimewaitIsFreeAtOnce) {
  const auto range = *lease(kAny, 1001);
  table_.end_lease(range, kStart, {});
  EXPECT_EQ(range, *lease(range, 1002));
}

TEST_F(Lease, EndLeavesWhatIsNoLongerLeased) {
  const auto range = *lease({100, 3}, 1001);
  table_.end_lease(range, kStart, {});
  table_.limit_to({101, 1});
  EXPECT_EQ(101u, claim(1));
  table_.end_lease(range, kStart, seconds(9));  // late, a second time
  EXPECT_EQ(SlotState::kFree, state(100));
  EXPECT_EQ(SlotState::kActive, state(101));
  EXPECT_EQ(1u, table_.owner(slot_at(101)).pid);
}

}  // namespace
}  // namespace verbena::agent
