#include "agent/slot_table.hpp"

#include <set>

#include "slots.hpp"

namespace verbena::agent {
namespace {

TEST_F(SlotTableTest, GivesEveryProcessSlotOnceInTurn) {
  for (unsigned expected = 1; expected <= 250; ++expected) EXPECT_EQ(expected, claim(expected));
  EXPECT_EQ(ENOMEM, table_.claim(kStart, process(9)).error().code);
  EXPECT_EQ(250u, table_.in_state(SlotState::kActive).size());
  EXPECT_EQ(SlotState::kFree, state(0));
  EXPECT_EQ(SlotState::kFree, state(251));
}

TEST_F(SlotTableTest, BeginsWhereItIsToldAndWrapsAround) {
  const std::pair<uint64_t, unsigned> cases[] = {{0, 1}, {1, 2}, {249, 250}, {250, 1}, {~uint64_t{0}, 116}};
  for (const auto& [start, expected] : cases) {
    const auto registry = std::move(arena::Registry::create("test")->second);
    SlotTable table(registry, start);
    EXPECT_EQ(expected, table.claim(kStart, process(1))->slot.value) << start;
    EXPECT_EQ(expected % 250 + 1, table.claim(kStart, process(2))->slot.value) << start;
  }
}

TEST_F(SlotTableTest, ReusesASlotAsLateAsPossible) {
  EXPECT_EQ(1u, claim(1));
  table_.release(slot_at(1), kStart, {});
  for (unsigned expected = 2; expected <= 250; ++expected) EXPECT_EQ(expected, claim(expected));
  EXPECT_EQ(1u, claim(251));
}

TEST_F(SlotTableTest, RemembersTheOwner) {
  const Owner owner{.pid = 4711, .start_ticks = 123'456'789'012, .uid = 1001, .view = 5};
  const auto claim = *table_.claim(kStart, owner);
  const Owner seen = table_.owner(claim.slot);
  EXPECT_EQ(owner.pid, seen.pid);
  EXPECT_EQ(owner.start_ticks, seen.start_ticks);
  EXPECT_EQ(owner.uid, seen.uid);
  EXPECT_EQ(owner.view, seen.view);
  EXPECT_EQ(claim.epoch, table_.word(claim.slot).epoch);
}

TEST_F(SlotTableTest, EachOwnerOfASlotHasAnEpochOfItsOwn) {
  table_.limit_to({7, 1});
  std::set<uint32_t> epochs;
  for (uint32_t pid = 1; pid <= 5; ++pid) {
    const auto claim = *table_.claim(kStart, process(pid));
    EXPECT_TRUE(epochs.insert(claim.epoch).second);
    table_.release(claim.slot, kStart, {});
  }
}

TEST_F(SlotTableTest, KeepsAReleasedSlotInQuarantineForItsTimewait) {
  table_.limit_to({7, 1});
  claim(1);
  table_.release(slot_at(7), kStart, seconds(4));
  EXPECT_EQ(SlotState::kQuarantined, state(7));
  EXPECT_EQ(0u, table_.word(slot_at(7)).pid);
  EXPECT_EQ(kStart + seconds(4), table_.next_deadline());

  EXPECT_FALSE(table_.claim(kStart + seconds(4) + base::Duration(-1), process(2)));
  EXPECT_TRUE(table_.claim(kStart + seconds(4), process(2)));
  EXPECT_EQ(std::nullopt, table_.next_deadline());
}

TEST_F(SlotTableTest, ExpireEndsQuarantinesThatAreOverAndNoOthers) {
  for (uint32_t pid = 1; pid <= 3; ++pid) claim(pid);
  table_.release(slot_at(1), kStart, seconds(3));
  table_.release(slot_at(2), kStart, seconds(1));
  EXPECT_EQ(kStart + seconds(1), table_.next_deadline());
  table_.expire(kStart + seconds(2));
  EXPECT_EQ(SlotState::kQuarantined, state(1));
  EXPECT_EQ(SlotState::kFree, state(2));
  EXPECT_EQ(SlotState::kActive, state(3));
  EXPECT_EQ(kStart + seconds(3), table_.next_deadline());
}

TEST_F(SlotTableTest, AnAbsurdTimewaitCostsAMinuteAtMost) {
  claim(1);
  claim(2);
  table_.release(slot_at(1), kStart, std::chrono::hours(5));
  EXPECT_EQ(kStart + seconds(60), table_.next_deadline());
  table_.release(slot_at(2), kStart, seconds(-5));
  EXPECT_EQ(SlotState::kFree, state(2));
}

TEST_F(SlotTableTest, QuarantineOutlivesTheAgent) {
  table_.limit_to({7, 1});
  claim(1);
  table_.release(slot_at(7), kStart, seconds(4));
  SlotTable next(registry_, 6);
  next.limit_to({7, 1});
  EXPECT_FALSE(next.claim(kStart + seconds(3), process(2)));
  EXPECT_EQ(7u, next.claim(kStart + seconds(5), process(2))->slot.value);
}

TEST_F(SlotTableTest, GivesOnlySlotsOfItsRange) {
  table_.limit_to({20, 3});
  EXPECT_EQ(20u, claim(1));
  EXPECT_EQ(21u, claim(2));
  EXPECT_EQ(22u, claim(3));
  EXPECT_FALSE(table_.claim(kStart, process(4)));
  table_.limit_to({});
  EXPECT_EQ(23u, claim(4));
  EXPECT_EQ(4u, table_.in_state(SlotState::kActive).size());  // what was held stays held
}

TEST_F(SlotTableTest, AFullTableSaysHowManyOfWhat) {
  claim_all();
  EXPECT_EQ(
      "no free slot: of the 250 processes that can use RDMA on this host at the same time 250 do, and 0 "
      "slots of "
      "ended ones are still in quarantine; end some programs",
      table_.claim(kStart, process(1)).error().sentence);
  for (const unsigned slot : {3, 77, 250}) table_.release(slot_at(slot), kStart, seconds(4));
  EXPECT_EQ(
      "no free slot: of the 250 processes that can use RDMA on this host at the same time 247 do, and 3 "
      "slots of "
      "ended ones are still in quarantine; end some programs or try again in a moment",
      table_.claim(kStart, process(1)).error().sentence);
}

TEST_F(SlotTableTest, AFullRangeCountsItsOwnOnly) {
  for (uint32_t pid = 1; pid <= 10; ++pid) claim(pid);
  table_.limit_to({9, 2});
  EXPECT_NE(std::string::npos,
            table_.claim(kStart, process(1)).error().sentence.find("of the 2 processes that can use RDMA"));
  EXPECT_NE(std::string::npos,
            table_.claim(kStart, process(1)).error().sentence.find("time 2 do, and 0 slots"));
}

// Resuming: a process comes back to the next agent with what an earlier one gave it.

TEST_F(SlotTableTest, ResumeGivesTheSameSlotAndEpochAgain) {
  const auto held = *table_.claim(kStart, process(1));
  SlotTable next(registry_, 0);
  Owner again = process(1);
  again.pid = 17;  // as seen from another pid namespace
  again.view = 4;
  const auto resumed = next.resume(held, again);
  ASSERT_TRUE(resumed) << resumed.error().sentence;
  EXPECT_EQ(held.slot, resumed->slot);
  EXPECT_EQ(held.epoch, resumed->epoch);
  EXPECT_EQ(17u, next.owner(held.slot).pid);
  EXPECT_EQ(4u, next.owner(held.slot).view);
  EXPECT_NE(held.slot, next.claim(kStart, process(2))->slot);
}

TEST_F(SlotTableTest, ResumeWithAnotherEpochIsRefused) {
  const auto held = *table_.claim(kStart, process(1));
  for (const uint32_t epoch : {held.epoch - 1, held.epoch + 1})
    EXPECT_EQ(EBUSY, table_.resume({held.slot, epoch}, process(2)).error().code) << epoch;
  // Epochs have 24 bits; the last one is never given, so that none comes twice.
  for (const uint32_t epoch : {held.epoch + 0x1000000, 0xffffffu})
    EXPECT_EQ(EINVAL, table_.resume({held.slot, epoch}, process(2)).error().code) << epoch;
  EXPECT_EQ(1u, table_.owner(held.slot).pid);
}

TEST_F(SlotTableTest, ResumeOfASlotThatWentToSomebodyElseIsRefused) {
  table_.limit_to({7, 1});
  const auto old = *table_.claim(kStart, process(1));
  table_.release(old.slot, kStart, {});
  const auto fresh = *table_.claim(kStart, process(2));
  EXPECT_EQ(EBUSY, table_.resume(old, process(1)).error().code);
  EXPECT_EQ(2u, table_.owner(fresh.slot).pid);
  EXPECT_EQ(fresh.epoch, table_.word(fresh.slot).epoch);
}

TEST_F(SlotTableTest, ResumeOfAQuarantinedOrLeasedSlotIsRefused) {
  const auto held = *table_.claim(kStart, process(1));
  table_.release(held.slot, kStart, seconds(4));
  EXPECT_EQ(EBUSY, table_.resume(held, process(1)).error().code);
  ASSERT_TRUE(table_.lease({100, 2}, agent_of(1001)));
  EXPECT_EQ(EBUSY, table_.resume({slot_at(100), table_.word(slot_at(100)).epoch}, process(1)).error().code);
}

TEST_F(SlotTableTest, ResumeTakesAFreeSlotWhereTheRegistryWasLost) {
  const auto resumed = table_.resume({slot_at(42), 9}, process(1));
  ASSERT_TRUE(resumed);
  EXPECT_EQ(slot_at(42), resumed->slot);
  EXPECT_GT(resumed->epoch, 9u);
  EXPECT_EQ(SlotState::kActive, state(42));
  EXPECT_EQ(1u, table_.owner(slot_at(42)).pid);
}

TEST_F(SlotTableTest, ResumeOutsideTheRangeOrOfNoProcessSlotIsRefused) {
  table_.limit_to({20, 3});
  EXPECT_EQ(EBUSY, table_.resume({slot_at(42), 9}, process(1)).error().code);
  for (const unsigned slot : {0, 251, 255})
    EXPECT_EQ(EINVAL, table_.resume({slot_at(slot), 0}, process(1)).error().code) << slot;
}

// Epochs tell owners apart, so an old claim must not turn the count back to numbers that others had.
TEST_F(SlotTableTest, ResumeOfAFreeSlotDoesNotRepeatAnEpochThatWasGiven) {
  table_.limit_to({7, 1});
  const auto old = *table_.claim(kStart, process(1));
  table_.release(old.slot, kStart, {});
  const auto later = *table_.claim(kStart, process(2));
  table_.release(later.slot, kStart, {});
  const auto resumed = *table_.resume(old, process(1));
  EXPECT_GT(resumed.epoch, later.epoch);
  EXPECT_FALSE(table_.resume(later, process(2)));
}

}  // namespace
}  // namespace verbena::agent
