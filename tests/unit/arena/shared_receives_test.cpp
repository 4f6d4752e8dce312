#include "arena/shared_receives.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "arena/segment.hpp"

namespace verbena::arena {
namespace {

using Claimed = SharedReceives::Claimed;

constexpr uint16_t kIndex = 5;
constexpr base::Slot kOurs{7};

// The queue of an owner that posts into its one block, entry by entry.
class SharedReceivesTest : public testing::Test {
 protected:
  static constexpr uint32_t kEntries = 64;

  void SetUp() override {
    entry().first.set(kEntries);
    entry().stride.set(32);
    entry().claims_at.set(kRingsHeapAt);
    entry().words_at[0].set(kRingsHeapAt + 64);
    entry().entries_at[0].set(kTablesHeapAt);
    entry().posted.set(first_);
    queue_.claims()->head.set(SrqHead{first_, 0}.pack());
  }
  SrqEntry& entry() { return arena_.srq(kIndex); }
  // Entry n is the nth: the chain is a circle.
  void post(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t number = entry().posted.get();
      const auto at = static_cast<uint16_t>((number - first_) % kEntries);
      queue_.entry(at)->next.set(static_cast<uint16_t>((at + 1) % kEntries));
      queue_.word(at)->release(ClaimWord{number, 0, 0, ClaimWord::State::kPosted}.pack());
      entry().posted.release(number + 1);
    }
  }
  SrqHead head() { return SrqHead::unpack(queue_.claims()->head.get()); }

  Segment tables_ = std::move(*create_sealed(kTablesName, kTablesSize, Sharing::kOwnerWrites));
  Segment rings_ = std::move(*create_sealed(kRingsName, kRingsSize, Sharing::kPeersWrite));
  ProcessArena arena_{tables_.mapping.data(), rings_.mapping.data()};
  SharedReceives queue_{arena_, kIndex};
  uint32_t first_ = 0xfffffff0;  // numbers wrap
};

TEST_F(SharedReceivesTest, ClaimsInOrderUntilNoneIsLeft) {
  SharedReceives::Claim claim;
  EXPECT_EQ(Claimed::kNone, queue_.claim(1, kOurs, claim));
  post(20);
  for (uint16_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(queue_.any_posted());
    ASSERT_EQ(Claimed::kYes, queue_.claim(9, kOurs, claim));
    EXPECT_EQ(i, claim.entry);
    const auto word = ClaimWord::unpack(queue_.word(i)->get());
    EXPECT_EQ(first_ + i, word.number);
    EXPECT_EQ(9, word.qp);
    EXPECT_EQ(kOurs.value, word.slot);
    EXPECT_EQ(ClaimWord::State::kClaimed, word.state);
  }
  EXPECT_FALSE(queue_.any_posted());
  EXPECT_EQ(Claimed::kNone, queue_.claim(1, kOurs, claim));
}

TEST_F(SharedReceivesTest, WhoDiesBetweenTheTwoStepsStopsNobody) {
  post(2);
  const uint64_t dead = ClaimWord{first_, 3, 99, ClaimWord::State::kClaimed}.pack();
  queue_.word(0)->set(dead);  // the head still stands there
  SharedReceives::Claim claim;
  ASSERT_EQ(Claimed::kYes, queue_.claim(1, kOurs, claim));
  EXPECT_EQ(1, claim.entry);
  EXPECT_EQ(dead, queue_.word(0)->get());
  EXPECT_EQ(first_ + 2, head().number);
}

TEST_F(SharedReceivesTest, TellsWhenFewAreLeft) {
  post(4);
  entry().limit.set(3);
  SharedReceives::Claim claim;
  ASSERT_EQ(Claimed::kYes, queue_.claim(1, kOurs, claim));
  EXPECT_FALSE(claim.below_limit) << "three are left";
  ASSERT_EQ(Claimed::kYes, queue_.claim(1, kOurs, claim));
  EXPECT_TRUE(claim.below_limit);
}

TEST_F(SharedReceivesTest, GivesBackOnlyWhatIsStillItsOwn) {
  post(2);
  SharedReceives::Claim claim;
  ASSERT_EQ(Claimed::kYes, queue_.claim(1, kOurs, claim));
  queue_.give_back(claim);
  EXPECT_EQ(ClaimWord::State::kReturned, ClaimWord::unpack(queue_.word(0)->get()).state);
  EXPECT_EQ(1u, queue_.claims()->returned.get());

  queue_.claims()->returned.set(0);
  const uint64_t posted_anew = ClaimWord{first_ + 77, 0, 0, ClaimWord::State::kPosted}.pack();
  queue_.word(0)->set(posted_anew);
  queue_.give_back(claim);
  EXPECT_EQ(posted_anew, queue_.word(0)->get());
  EXPECT_EQ(0u, queue_.claims()->returned.get());
}

TEST_F(SharedReceivesTest, NoLieLeadsOutOfTheSegments) {
  post(3);
  EXPECT_TRUE(queue_.sane());
  SharedReceives::Claim claim;
  queue_.claims()->head.set(SrqHead{first_, 60000}.pack());  // an entry in a block that isn't there
  EXPECT_EQ(Claimed::kCorrupt, queue_.claim(1, kOurs, claim));
  queue_.claims()->head.set(SrqHead{first_ - 1'000'000, 0}.pack());
  EXPECT_EQ(Claimed::kBusy, queue_.claim(1, kOurs, claim));
  queue_.claims()->head.set(SrqHead{first_ + 1, 0}.pack());  // the entry has another number
  EXPECT_EQ(Claimed::kBusy, queue_.claim(1, kOurs, claim));
  queue_.claims()->head.set(SrqHead{first_, 0}.pack());
  entry().words_at[0].set(kRingsSize - 64);
  EXPECT_EQ(Claimed::kCorrupt, queue_.claim(1, kOurs, claim));
  entry().first.set(48);
  EXPECT_FALSE(queue_.sane());
  EXPECT_EQ(nullptr, queue_.entry(0));
  entry().first.set(kEntries);
  entry().claims_at.set(12);
  EXPECT_FALSE(queue_.sane());
}

TEST_F(SharedReceivesTest, BlocksFollowEachOther) {
  uint32_t at = 0;
  unsigned block = 0;
  for (uint32_t number = 0; number < 32768; ++number) {
    const auto place = SharedReceives::place_of(16, static_cast<uint16_t>(number));
    ASSERT_EQ(block, place.block) << number;
    ASSERT_EQ(at, place.at) << number;
    if (++at == place.block_entries) {
      at = 0;
      ++block;
    }
  }
  EXPECT_EQ(kSrqBlocks, block);
}

// Each receive is claimed once, whoever is first; the owner posts each again.
TEST_F(SharedReceivesTest, ManyAtTheSameTime) {
  constexpr int kThreads = 4;
  constexpr uint32_t kEach = 5000;
  std::vector<std::vector<uint32_t>> got(kThreads);
  post(kEntries);
  std::atomic<uint32_t> claimed = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      while (got[t].size() < kEach) {
        SharedReceives::Claim claim;
        const auto result = queue_.claim(static_cast<uint16_t>(t), kOurs, claim);
        if (result != Claimed::kYes) {
          ASSERT_NE(Claimed::kCorrupt, result);
          std::this_thread::yield();
          continue;
        }
        const auto word = ClaimWord::unpack(claim.word);
        ASSERT_EQ((word.number - first_) % kEntries, claim.entry);
        got[t].push_back(word.number);
        ++claimed;
      }
    });
  for (uint32_t posted = kEntries; posted < kThreads * kEach;) {
    // An entry is free again when the head has passed it and its claimant is done with it.
    const uint32_t passed = head().number - first_;
    const uint32_t done = std::min(passed, claimed.load());
    if (posted - done < kEntries / 2) {
      post(1);
      ++posted;
    } else {
      std::this_thread::yield();
    }
  }
  threads.clear();
  std::set<uint32_t> all;
  for (const auto& numbers : got) all.insert(numbers.begin(), numbers.end());
  EXPECT_EQ(kThreads * kEach, all.size());
}

}  // namespace
}  // namespace verbena::arena
