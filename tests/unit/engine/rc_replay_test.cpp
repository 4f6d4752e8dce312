// READs and atomics that are asked for again: answered again, carried out once.
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
