// What comes back to a requester: past, awaited and never asked for.
#include "engine/timers.hpp"
#include "requester_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;
namespace syndrome = roce::syndrome;

class RcCompleterTest : public RequesterScript {
 protected:
  // The round trip is known then: 100 us.
  void open_with_round_trip() {
    open(usual());
    send(1);
    EXPECT_EQ(sent().size(), 1u);
    pass(100);
    EXPECT_EQ(ack(0), DropReason::kNone);
    EXPECT_EQ(ended(), Lines{"0"});
  }
};

TEST_F(RcCompleterTest, OneAcknowledgementEndsAllBeforeIt) {
  open(usual());
  send(1);
  write(600);
  send(1);
  EXPECT_EQ(sent().size(), 5u);
  EXPECT_EQ(ack(1), DropReason::kNone);  // the first of the WRITE's three packets
  EXPECT_EQ(ended(), Lines{"0"});
  EXPECT_EQ(ack(4), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"1", "2"}));
  EXPECT_TRUE(requester_->idle());
  EXPECT_EQ(requester_->next_deadline(), kNoDeadline);
}

TEST_F(RcCompleterTest, StaleAndGhostAnswersChangeNothing) {
  open(usual());
  send(1);
  send(1);
  send(1);
  EXPECT_EQ(sent().size(), 3u);
  EXPECT_EQ(ack(3), DropReason::kGhostAnswer);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 9, 1)), DropReason::kGhostAnswer);
  EXPECT_EQ(receive(atomic_ack_packet(9, 1)), DropReason::kGhostAnswer);
  EXPECT_EQ(nak(3), DropReason::kGhostAnswer);
  EXPECT_EQ(ack(1), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1"}));
  EXPECT_EQ(ack(0), DropReason::kStaleAnswer);
  EXPECT_EQ(nak(1), DropReason::kStaleAnswer);
  EXPECT_EQ(nak(1, syndrome::kRemoteAccess), DropReason::kStaleAnswer);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 1, 1)), DropReason::kStaleAnswer);
  EXPECT_EQ(receive(atomic_ack_packet(0, 1)), DropReason::kStaleAnswer);
  EXPECT_EQ(ack(1), DropReason::kNone);  // may bring credits
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(ended(), Lines{});
  EXPECT_FALSE(requester_->failed());
}

TEST_F(RcCompleterTest, AnAnswerOfTheWrongKindIsNone) {
  open(usual());
  send(1);
  read(1);
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 1)), DropReason::kBadAnswer);
  EXPECT_EQ(receive(atomic_ack_packet(1, 1)), DropReason::kBadAnswer);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kBadOpcode);
  EXPECT_EQ(nak(1, 0x7f), DropReason::kBadAnswer);
  EXPECT_FALSE(requester_->failed());
}

TEST_F(RcCompleterTest, ANakGoesBack) {
  open_with_round_trip();
  for (int i = 0; i < 4; ++i) send(1);
  EXPECT_EQ(sent().size(), 4u);
  pass(100);
  EXPECT_EQ(nak(2), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{"1"});  // it acknowledges what was before
  EXPECT_EQ(sent(), (Lines{"SendOnly 2 ack 1B", "SendOnly 3 ack 1B", "SendOnly 4 ack 1B"}));
  EXPECT_EQ(requester_->counters().retransmitted, 3u);
}

TEST_F(RcCompleterTest, AnotherNakOfTheSameGapDoesNot) {
  open_with_round_trip();
  for (int i = 0; i < 4; ++i) send(1);
  EXPECT_EQ(sent().size(), 4u);
  pass(100);
  EXPECT_EQ(nak(2), DropReason::kNone);
  EXPECT_EQ(nak(2), DropReason::kStaleAnswer);
  EXPECT_EQ(sent().size(), 3u);
  pass(10);
  EXPECT_EQ(nak(2), DropReason::kStaleAnswer);
  EXPECT_EQ(sent(), Lines{});
}

TEST_F(RcCompleterTest, ANakAfterARoundTripSaysThatTheSecondTryIsLostToo) {
  open_with_round_trip();
  for (int i = 0; i < 4; ++i) send(1);
  EXPECT_EQ(sent().size(), 4u);
  for (int i = 0; i < 3; ++i) {
    pass(100);
    EXPECT_EQ(nak(2), DropReason::kNone);
    EXPECT_EQ(sent().size(), 3u);
  }
}

TEST_F(RcCompleterTest, NakForEverIsLeftToTheTimer) {
  open_with_round_trip();
  send(1);
  send(1);
  EXPECT_EQ(sent().size(), 2u);
  size_t packets = 0;
  for (int i = 0; i < 1000 && !requester_->failed(); ++i) {
    pass(100);
    (void)nak(1);
    if (requester_->next_deadline() <= now_) requester_->on_timer(now_);
    packets += sent().size();
  }
  EXPECT_LT(packets, 100u);
}

TEST_F(RcCompleterTest, NakCodesEndTheRequest) {
  const std::pair<uint8_t, std::string> kCodes[] = {{syndrome::kInvalidRequest, "1 status 3"},
                                                    {syndrome::kRemoteAccess, "1 status 2"},
                                                    {syndrome::kOperational, "1 status 4"}};
  for (const auto& [code, end] : kCodes) {
    open(usual());
    send(1);
    write(1);
    send(1);
    EXPECT_EQ(sent().size(), 3u);
    EXPECT_EQ(nak(1, code), DropReason::kNone);
    EXPECT_EQ(ended(), (Lines{"0", end}));
    EXPECT_TRUE(requester_->failed());
    EXPECT_EQ(sent(), Lines{});
    EXPECT_EQ(ack(2), DropReason::kStaleAnswer);
    EXPECT_EQ(ended(), Lines{});
    EXPECT_EQ(requester_->next_deadline(), kNoDeadline);
  }
}

TEST_F(RcCompleterTest, ANakBehindAnUnansweredReadWaitsForIt) {
  open(usual());
  read(1);
  write(1);
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_EQ(nak(1, syndrome::kRemoteAccess), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{});
  EXPECT_EQ(sent(), (Lines{"ReadRequest 0 ack @1000+1", "WriteOnly 1 ack @1000+1 1B"}));
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(nak(1, syndrome::kRemoteAccess), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1 status 2"}));
}

TEST_F(RcCompleterTest, RnrWaitsThenTriesWithOnePacket) {
  open(usual());
  send(600);
  send(1);
  EXPECT_EQ(sent().size(), 4u);
  EXPECT_EQ(nak(0, syndrome::kRnr | 10), DropReason::kNone);
  EXPECT_EQ(nak(0, syndrome::kRnr | 10), DropReason::kStaleAnswer);
  EXPECT_EQ(nak(0), DropReason::kStaleAnswer);
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(requester_->next_deadline(), now_ + rnr_timer(10));
  ring();
  EXPECT_EQ(sent(), Lines{"SendFirst 0 ack 256B"});
  EXPECT_EQ(ack(0), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{"SendMiddle 1 256B", "SendLast 2 88B", "SendOnly 3 ack 1B"}));
}

TEST_F(RcCompleterTest, AnExpiredRnrWaitNeedsNoTimerCall) {
  open(usual());
  send(1);
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(nak(0, syndrome::kRnr | 10), DropReason::kNone);
  pass(rnr_timer(10).count() / 1000);
  EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 1B"});
  EXPECT_EQ(nak(0, syndrome::kRnr | 10), DropReason::kNone);
  EXPECT_EQ(requester_->next_deadline(), now_ + rnr_timer(10));
}

TEST_F(RcCompleterTest, RnrRetriesAreCounted) {
  auto config = usual();
  config.rnr_retries = 2;
  open(config);
  send(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(nak(0, syndrome::kRnr | 1), DropReason::kNone);
    EXPECT_EQ(ended(), Lines{});
    ring();
  }
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(nak(0, syndrome::kRnr | 1), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{"0 status 6"});
}

TEST_F(RcCompleterTest, SevenRnrRetriesAreEndless) {
  open(usual());
  send(1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(nak(0, syndrome::kRnr | 0), DropReason::kNone);  // 655 ms: it lives, though not ready
    ring();
  }
  EXPECT_FALSE(requester_->failed());
}

// Half a second of a wait of 10 us each would be 50,000 tries.
TEST_F(RcCompleterTest, EndlessRnrRetriesComeLessAndLessOften) {
  open(usual());
  send(1);
  const base::Instant begun = now_;
  int tries = 0;
  for (; now_ - begun < std::chrono::milliseconds(500); ++tries) {
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(nak(0, syndrome::kRnr | 1), DropReason::kNone);
    const base::Duration wait = requester_->next_deadline() - now_;
    EXPECT_GE(wait, rnr_timer(1));
    EXPECT_LE(wait, std::max(rnr_timer(1), (now_ - begun) / 8));
    EXPECT_LE(wait, std::chrono::milliseconds(25));
    ring();
  }
  EXPECT_LT(tries, 150);
  // The next message's receive may be there at once.
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(ack(0), DropReason::kNone);
  send(1);
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(nak(1, syndrome::kRnr | 1), DropReason::kNone);
  EXPECT_EQ(requester_->next_deadline(), now_ + rnr_timer(1));
}

TEST_F(RcCompleterTest, ReadAnswersAreTakenInOrderOnly) {
  open_with_round_trip();
  read(4 * kMtu + 10);
  EXPECT_EQ(sent(), Lines{"ReadRequest 1 ack @1000+1034"});
  pass(100);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseFirst, 1, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseMiddle, 3, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(sent(), Lines{"ReadRequest 2 ack @1100+778"});  // from the missing one on, to the same end
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseMiddle, 4, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseLast, 5, 10)), DropReason::kOutOfOrder);
  EXPECT_EQ(sent(), Lines{});
  pass(100);
  // Numbers that run backwards: the second try has lost its first answer, too.
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseMiddle, 3, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(sent(), Lines{"ReadRequest 2 ack @1100+778"});
  for (uint32_t psn = 2; psn < 5; ++psn)
    EXPECT_EQ(receive(response_packet(Operation::kReadResponseMiddle, psn, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseLast, 5, 10)), DropReason::kNone);
  EXPECT_EQ(scattered(), (Lines{"1: 0+256", "1: 256+256", "1: 512+256", "1: 768+256", "1: 1024+10 last"}));
  EXPECT_EQ(ended(), Lines{"1"});
}

TEST_F(RcCompleterTest, AReadIsNeverAskedForAgainBeyondItsFirstEnd) {
  open_with_round_trip();
  read(2 * kMtu);
  read(2 * kMtu);
  EXPECT_EQ(sent(), (Lines{"ReadRequest 1 ack @1000+512", "ReadRequest 3 ack @1000+512"}));
  pass(100);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseLast, 4, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(sent(), (Lines{"ReadRequest 1 ack @1000+512", "ReadRequest 3 ack @1000+512"}));
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseFirst, 1, kMtu)), DropReason::kNone);
  ring();
  EXPECT_EQ(sent(), Lines{"ReadRequest 2 ack @1100+256"});
}

TEST_F(RcCompleterTest, AReadAnswerOfTheWrongLengthIsABadResponse) {
  for (const size_t length : {size_t{0}, size_t{9}, size_t{11}, size_t{kMtu}}) {
    open(usual());
    read(10);
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, length)), DropReason::kBadAnswer);
    EXPECT_EQ(ended(), Lines{"0 status 7"});
    EXPECT_EQ(scattered(), Lines{});
    EXPECT_TRUE(requester_->failed());
  }
}

TEST_F(RcCompleterTest, AReadIntoUnwritableMemoryEndsThere) {
  open(usual());
  unwritable_ = 0;
  read(10);
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 10)), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{"0 status 1"});
}

TEST_F(RcCompleterTest, AnAnswerAcknowledgesWhatWasBeforeIt) {
  open(usual());
  send(1);
  add(1);
  write(1);
  read(0);
  EXPECT_EQ(sent(), (Lines{"SendOnly 0 ack 1B", "FetchAdd 1 ack", "WriteOnly 2 ack @1000+1 1B",
                           "ReadRequest 3 ack @1000+0"}));
  EXPECT_EQ(receive(atomic_ack_packet(1, 5)), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1"}));
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 3, 0)), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"2", "3"}));
  EXPECT_EQ(scattered(), Lines{"1: 0+8 last"});
}

TEST_F(RcCompleterTest, AnAcknowledgementDoesNotEndAFetch) {
  open(usual());
  add(1);
  write(1);
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_EQ(ack(1), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{});
  EXPECT_EQ(sent(), (Lines{"FetchAdd 0 ack", "WriteOnly 1 ack @1000+1 1B"}));  // its answer was lost
  EXPECT_EQ(receive(atomic_ack_packet(0, 5)), DropReason::kNone);
  EXPECT_EQ(ack(1), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1"}));
}

TEST_F(RcCompleterTest, ALongPathIsLearntEvenThoughTheFirstGuessIsTooShort) {
  auto config = usual();
  config.timeout = std::chrono::seconds(4);
  open(config);
  constexpr int64_t kRoundTrip = 100'000;
  uint64_t packets = 0;
  for (uint32_t psn = 0; psn < 10; ++psn) {
    send(1);
    const auto arrives = now_ + std::chrono::microseconds(kRoundTrip);
    size_t copies = sent().size();
    while (requester_->next_deadline() < arrives) {
      ring();
      copies += sent().size();
    }
    now_ = arrives;
    EXPECT_EQ(ack(psn), DropReason::kNone);
    if (psn > 6) {
      EXPECT_EQ(copies, 1u) << psn;
    }
    packets += copies;
  }
  EXPECT_LT(packets, 40u);
}

}  // namespace
}  // namespace verbena::engine
