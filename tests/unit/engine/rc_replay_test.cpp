// READs and atomics that are asked for again: answered again, carried out once.
#include "engine/message.hpp"
#include "responder_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

class RcReplayTest : public ResponderScript {};

TEST_F(RcReplayTest, AnAtomicRunsOnce) {
  EXPECT_EQ(receive(add_packet(0, 5)), DropReason::kNone);
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 2u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(receive(add_packet(0, 5)), DropReason::kDuplicate);
    EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kDuplicate);
    EXPECT_EQ(answers(), (Lines{"AtomicAcknowledge 0 before 0", "AtomicAcknowledge 1 before 5"}));
  }
  EXPECT_EQ(actions_.counter, 10u);
}

TEST_F(RcReplayTest, AReadMayBeAskedForAgainInParts) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 3u);
  EXPECT_EQ(receive(read_packet(1, 0x1100, 344)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), (Lines{"ReadResponseFirst 1 256B", "ReadResponseLast 2 88B"}));
  EXPECT_EQ(receive(read_packet(0, 0x1000, 256)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), Lines{"ReadResponseOnly 0 256B"});
  EXPECT_EQ(responder_->expected(), kFirst + 3);
}

TEST_F(RcReplayTest, WhatWasNeverAskedForIsNotAnswered) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 3u);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 601)), DropReason::kReplayForgotten);  // longer
  EXPECT_EQ(receive(read_packet(1, 0x1000, 256)), DropReason::kReplayForgotten);  // from elsewhere
  auto other = read_packet(0, 0x1000, 600);
  other.reth.key = 8;
  EXPECT_EQ(receive(other), DropReason::kReplayForgotten);
  EXPECT_EQ(receive(add_packet(0, 5)), DropReason::kReplayForgotten);
  EXPECT_EQ(answers(), Lines{});
  EXPECT_FALSE(responder_->failed());
}

TEST_F(RcReplayTest, OnlyAsManyAreKeptAsWereGranted) {
  open(2);
  for (uint32_t psn = 0; psn < 3; ++psn) {
    EXPECT_EQ(receive(add_packet(psn, 5)), DropReason::kNone);
    EXPECT_EQ(answers().size(), 1u);
  }
  EXPECT_EQ(receive(add_packet(0, 5)), DropReason::kReplayForgotten);
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), Lines{"AtomicAcknowledge 1 before 5"});
}

TEST_F(RcReplayTest, MoreAtATimeThanWereGrantedAreRefused) {
  open(1);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(3, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(answers().back(), "Acknowledge 3 nak 1");
}

TEST_F(RcReplayTest, ALateCopyDoesNotStandInTheWayOfTheNext) {
  open(1);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 3u);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kDuplicate);  // its answer isn't sent yet, when
  EXPECT_EQ(receive(read_packet(3, 0x1000, 10)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"ReadResponseOnly 3 10B"});
}

TEST_F(RcReplayTest, WhatIsStillToBeSentIsNotSentTwice) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kDuplicate);
  EXPECT_EQ(receive(read_packet(1, 0x1100, 344)), DropReason::kDuplicate);
  EXPECT_EQ(answers().size(), 3u);
}

TEST_F(RcReplayTest, AnswersGoInTheOrderOfTheirNumbers) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 300)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 2u);
  EXPECT_EQ(receive(read_packet(2, 0x1000, 300)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 300)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), (Lines{"ReadResponseFirst 0 256B", "ReadResponseLast 1 44B",
                              "ReadResponseFirst 2 256B", "ReadResponseLast 3 44B"}));
}

TEST_F(RcReplayTest, CopiesWithoutEndPileUpOnlySoFar) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 200 * kMtu)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 200u);
  size_t taken = 0;
  for (uint32_t psn = 0; psn < 200; ++psn)
    taken += receive(read_packet(psn, 0x1000 + psn * kMtu, kMtu)) == DropReason::kDuplicate;
  EXPECT_EQ(taken, 16u);
  EXPECT_EQ(answers().size(), 16u);
}

// A pair more is no READ more.
TEST_F(RcReplayTest, PairsThatFollowEachOtherAreOneRead) {
  open(1);
  for (uint32_t psn = 0; psn < 6; psn += 2)
    EXPECT_EQ(receive(read_packet(psn, 0x1000 + psn * kMtu, 2 * kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(6, 0x1000 + 6 * kMtu, 10)), DropReason::kNone);
  EXPECT_EQ(answers(),
            (Lines{"ReadResponseFirst 0 256B", "ReadResponseLast 1 256B", "ReadResponseFirst 2 256B",
                   "ReadResponseLast 3 256B", "ReadResponseFirst 4 256B", "ReadResponseLast 5 256B",
                   "ReadResponseOnly 6 10B"}));
  // Behind an end begins another one, and so does what lies elsewhere.
  EXPECT_EQ(receive(read_packet(7, 0x1000 + 6 * kMtu + 10, 2 * kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(9, 0x1000, 2 * kMtu)), DropReason::kNone) << "the last, and one more";
  EXPECT_EQ(receive(read_packet(11, 0x3000, 2 * kMtu)), DropReason::kNone);
  EXPECT_EQ(answers().back(), "Acknowledge 11 nak 1");
}

TEST_F(RcReplayTest, PairsAreAnsweredAgainEachForItself) {
  for (uint32_t psn = 0; psn < 8; psn += 2)
    EXPECT_EQ(receive(read_packet(psn, 0x1000 + psn * kMtu, 2 * kMtu)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 8u);
  EXPECT_EQ(receive(read_packet(3, 0x1000 + 3 * kMtu, kMtu)), DropReason::kDuplicate);
  EXPECT_EQ(receive(read_packet(4, 0x1000 + 4 * kMtu, 2 * kMtu)), DropReason::kDuplicate);
  EXPECT_EQ(receive(read_packet(6, 0x1000 + 6 * kMtu, kMtu)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), (Lines{"ReadResponseOnly 3 256B", "ReadResponseFirst 4 256B",
                              "ReadResponseLast 5 256B", "ReadResponseOnly 6 256B"}));
  EXPECT_EQ(receive(read_packet(6, 0x1000 + 4 * kMtu, 2 * kMtu)), DropReason::kReplayForgotten);
  EXPECT_EQ(receive(read_packet(6, 0x1000 + 6 * kMtu, 2 * kMtu + 1)), DropReason::kReplayForgotten);
  EXPECT_EQ(answers(), Lines{});
}

// Copies of all pairs are no more answers to be sent than one of the whole.
TEST_F(RcReplayTest, PairsAskedForAgainAreOneAnswer) {
  open(1);
  for (const auto expected : {DropReason::kNone, DropReason::kDuplicate})
    for (uint32_t psn = 0; psn < 200; psn += 2) {
      EXPECT_EQ(receive(read_packet(psn, 0x1000 + psn * kMtu, 2 * kMtu)), expected);
      if (expected == DropReason::kNone) {
        EXPECT_EQ(answers().size(), 2u);
      }
    }
  EXPECT_EQ(answers().size(), 200u);
}

// What the responder takes for one may begin in the middle of a READ: so one more is remembered.
TEST_F(RcReplayTest, LongReadsInPairsAreNeverMoreThanWereGranted) {
  open(1);
  constexpr uint32_t kPackets = kLongestEven / kMtu * 3 / 4;
  for (uint32_t read = 0; read < 7; ++read) {
    const uint32_t begin = read * kPackets;
    for (const auto expected : {DropReason::kNone, DropReason::kDuplicate}) {
      for (uint32_t psn = begin; psn < begin + kPackets; psn += 2)
        ASSERT_EQ(receive(read_packet(psn, 0x1000 + psn * kMtu, 2 * kMtu)), expected);
      ASSERT_EQ(answers().size(), kPackets);
    }
  }
}

TEST_F(RcReplayTest, ARegionThatGoesAwayEndsTheReadThere) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600)), DropReason::kNone);
  EXPECT_TRUE(responder_->poll_transmit(at_us(0), sink_));
  actions_.read_says = Verdict::kUnmapped;
  EXPECT_EQ(answers(), (Lines{"ReadResponseFirst 0 256B", "Acknowledge 1 nak 2"}));
  EXPECT_EQ(done().back(), "fail 10");
}

TEST_F(RcReplayTest, AReadWaitsWhileItsMemoryCanNotBeRead) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10)), DropReason::kNone);
  actions_.read_says = Verdict::kNoRoom;
  EXPECT_EQ(answers(), Lines{});
  EXPECT_TRUE(responder_->has_answers());
  EXPECT_EQ(answers(), Lines{"ReadResponseOnly 0 10B"});
}

TEST_F(RcReplayTest, ReadsBeforeAFailureAreAnsweredFirst) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10)), DropReason::kNone);
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kNone);
  actions_.next = Verdict::kBadKey;
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 2, 1, 1)), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"check read 1000+10", "add 5"}));  // a queue pair in ERR would read nothing
  EXPECT_EQ(answers(),
            (Lines{"ReadResponseOnly 0 10B", "AtomicAcknowledge 1 before 0", "Acknowledge 2 nak 2"}));
  EXPECT_EQ(done(), Lines{"fail 6"});
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), Lines{"AtomicAcknowledge 1 before 0"});
  EXPECT_EQ(actions_.counter, 5u);
}

}  // namespace
}  // namespace verbena::engine
