// Every kind of packet to a responder: in order, past and future, and those that no requester may send.
#include "responder_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

class RcResponderTest : public ResponderScript {};

TEST_F(RcResponderTest, ASendInOrder) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 10)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"deliver 10"});
  EXPECT_EQ(answers(), Lines{"Acknowledge 0"});
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 1, kMtu)), DropReason::kNone);
  EXPECT_TRUE(responder_->in_message());
  EXPECT_EQ(answers(), Lines{});  // it didn't ask
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 2, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 3, 1)), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"begin", "place 0+256", "place 256+256", "place 512+1 last", "finish 513"}));
  EXPECT_FALSE(responder_->in_message());
  EXPECT_EQ(answers(), Lines{"Acknowledge 3"});
}

TEST_F(RcResponderTest, AWriteInOrder) {
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 0, 10, 10)), DropReason::kNone);
  EXPECT_EQ(receive(write_packet(Operation::kWriteFirst, 1, 513, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kWriteMiddle, 2, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kWriteLastImm, 3, 1)), DropReason::kNone);
  EXPECT_EQ(done(),
            (Lines{"check write 1000+10", "write 1000+10 last", "check write 1000+513", "write 1000+256",
                   "write 1100+256", "begin imm", "write 1200+1 last", "finish 513"}));
  EXPECT_EQ(answers(), Lines{"Acknowledge 3"});  // one for all
}

TEST_F(RcResponderTest, AReadInOrder) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(1, 0x1000, 600)), DropReason::kNone);
  EXPECT_EQ(receive(read_packet(4, 0x1000, 0)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 5, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), (Lines{"ReadResponseFirst 1 256B", "ReadResponseMiddle 2 256B",
                              "ReadResponseLast 3 88B", "ReadResponseOnly 4", "Acknowledge 5"}));
}

TEST_F(RcResponderTest, AnAtomicInOrder) {
  EXPECT_EQ(receive(add_packet(0, 5)), DropReason::kNone);
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kNone);
  EXPECT_EQ(answers(), (Lines{"AtomicAcknowledge 0 before 0", "AtomicAcknowledge 1 before 5"}));
}

TEST_F(RcResponderTest, CreditsAreTold) {
  actions_.receives = 5;
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 credits 4"});
}

// Whatever it is: what comes after a gap isn't carried out, and told of once.
TEST_F(RcResponderTest, TheFuture) {
  const roce::Packet kFuture[] = {
      request_packet(Operation::kSendOnly, 2, 1), request_packet(Operation::kSendMiddle, 2, kMtu),
      write_packet(Operation::kWriteOnly, 2, 1, 1), read_packet(2, 0x1000, 10), add_packet(2, 5)};
  for (const auto& packet : kFuture) {
    open();
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
    (void)done();
    EXPECT_EQ(receive(packet), DropReason::kOutOfOrder);
    EXPECT_EQ(answers(), Lines{"Acknowledge 1 nak 0"});
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 3, 1)), DropReason::kOutOfOrder);
    EXPECT_EQ(answers(), Lines{});
    EXPECT_EQ(done(), Lines{});
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kNone);
    EXPECT_EQ(answers(), Lines{"Acknowledge 1"});
  }
}

// SENDs and WRITEs of the past are acknowledged again, and not carried out again.
TEST_F(RcResponderTest, ThePast) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnlyImm, 1, 1, 1)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 2, kMtu)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2"});
  (void)done();
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kDuplicate);
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnlyImm, 1, 1, 1)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2"});
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 2, kMtu)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2"});
  EXPECT_EQ(done(), Lines{});
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 3, 1)), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"place 256+1 last", "finish 257"}));
}

// A READ of the past whose region went away since: a NAK for who still waits for it, and no end of the
// connection.
TEST_F(RcResponderTest, ThePastThatMayNoLongerBeRead) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10)), DropReason::kNone);
  EXPECT_EQ(answers().size(), 1u);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10)), DropReason::kDuplicate);
  actions_.read_says = Verdict::kBadKey;
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 2"});
  EXPECT_FALSE(responder_->failed());
  (void)done();
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 1"});
}

TEST_F(RcResponderTest, AGapIsToldAgainWhenTheRequesterHasGoneBack) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 0"});
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 3, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(answers(), Lines{});
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 0"});
}

TEST_F(RcResponderTest, WhatOnlyCameLateMovesTheNakOn) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 1)), DropReason::kOutOfOrder);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 1 nak 0"});
}

TEST_F(RcResponderTest, RnrIsToldEachTimeAndNothingElse) {
  actions_.next = Verdict::kNotReady;
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 0, kMtu)), DropReason::kNotReady);
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 1, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 rnr 9"});
  actions_.next = Verdict::kNotReady;
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 0, kMtu)), DropReason::kNotReady);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 rnr 9"});
  // The third try loses its first packet.
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 1, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 1, kMtu)), DropReason::kOutOfOrder);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 0"});
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 0, kMtu)), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"begin", "place 0+256"}));
}

TEST_F(RcResponderTest, SilenceAndNoRoomAreNotAnswered) {
  for (const auto verdict : {Verdict::kSilence, Verdict::kNoRoom}) {
    open();
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
    (void)answers();
    for (int pass = 0; pass < 3; ++pass) {
      actions_.next = verdict;
      EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)),
                verdict == Verdict::kSilence ? DropReason::kSilence : DropReason::kNoRoom);
      EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 1)), DropReason::kOutOfOrder);
      EXPECT_EQ(answers(), Lines{});
    }
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kNone);
    EXPECT_EQ(answers(), Lines{"Acknowledge 1"});
  }
}

TEST_F(RcResponderTest, AnAtomicThatFoundNoRoomRunsLater) {
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 0, 1, 1)), DropReason::kNone);
  actions_.next = Verdict::kNoRoom;
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kNoRoom);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0"});
  EXPECT_EQ(receive(add_packet(1, 5)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"AtomicAcknowledge 1 before 0"});
  EXPECT_EQ(actions_.counter, 5u);
}

TEST_F(RcResponderTest, NakCodes) {
  const std::pair<Verdict, int> kCodes[] = {
      {Verdict::kBadKey, 2},      {Verdict::kBadBounds, 2},  {Verdict::kNoAccess, 2},
      {Verdict::kWrongDomain, 2}, {Verdict::kUnmapped, 2},   {Verdict::kNotEnabled, 1},
      {Verdict::kTooLong, 1},     {Verdict::kMisaligned, 1}, {Verdict::kBadSequence, 1},
      {Verdict::kBadReceive, 3},  {Verdict::kCorrupt, 3}};
  for (const auto& [verdict, code] : kCodes) {
    open();
    actions_.next = verdict;
    EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
    EXPECT_EQ(done(), Lines{fmt::format("fail {}", static_cast<int>(verdict))});
    EXPECT_EQ(answers(), Lines{fmt::format("Acknowledge 0 nak {}", code)});
    EXPECT_TRUE(responder_->failed());
  }
}

TEST_F(RcResponderTest, AFailureIsToldAgainToWhoeverIsNotPastIt) {
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 0, 1, 1)), DropReason::kNone);
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 1, 1, 1)), DropReason::kNone);
  actions_.next = Verdict::kBadKey;
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 2, 1, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2 nak 2"});
  (void)done();
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 3, 1, 1)), DropReason::kSilence);
  EXPECT_EQ(answers(), Lines{});
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 2, 1, 1)), DropReason::kSilence);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2 nak 2"});
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 0, 1, 1)), DropReason::kSilence);
  EXPECT_EQ(answers(), Lines{"Acknowledge 2 nak 2"});
  EXPECT_EQ(done(), Lines{});
}

TEST_F(RcResponderTest, AFailureThatFindsNoRoomIsToldLater) {
  actions_.next = Verdict::kBadKey;
  actions_.fail_says = Verdict::kNoRoom;
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, 0, 1, 1)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"fail 6"});
  EXPECT_TRUE(responder_->has_answers());
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 2"});
  EXPECT_EQ(done(), Lines{"fail 6"});
  EXPECT_FALSE(responder_->has_answers());
}

TEST_F(RcResponderTest, MessagesThatNoRequesterMaySend) {
  const std::vector<std::vector<roce::Packet>> kBroken = {
      {request_packet(Operation::kSendMiddle, 0, kMtu)},
      {request_packet(Operation::kSendLast, 0, 1)},
      {request_packet(Operation::kWriteMiddle, 0, kMtu)},
      {request_packet(Operation::kSendFirst, 0, kMtu - 1)},
      {request_packet(Operation::kSendOnly, 0, kMtu + 1)},
      {request_packet(Operation::kSendFirst, 0, kMtu), request_packet(Operation::kSendOnly, 1, 1)},
      {request_packet(Operation::kSendFirst, 0, kMtu), request_packet(Operation::kSendLast, 1, 0)},
      {request_packet(Operation::kSendFirst, 0, kMtu), request_packet(Operation::kWriteLast, 1, 1)},
      {request_packet(Operation::kSendFirst, 0, kMtu), read_packet(1, 0x1000, 1)},
      {request_packet(Operation::kSendFirst, 0, kMtu), add_packet(1, 1)},
      {write_packet(Operation::kWriteOnly, 0, 2, 1)},
      {write_packet(Operation::kWriteOnly, 0, 0, 1)},
      {write_packet(Operation::kWriteFirst, 0, kMtu, kMtu)},
      {write_packet(Operation::kWriteFirst, 0, kMtu + 2, kMtu), request_packet(Operation::kWriteLast, 1, 1)},
      {write_packet(Operation::kWriteFirst, 0, kMtu + 1, kMtu),
       request_packet(Operation::kWriteMiddle, 1, kMtu)},
      {write_packet(Operation::kWriteFirst, 0, 0x80000001, kMtu)},
      {read_packet(0, 0x1000, 0x80000001)}};
  for (size_t i = 0; i < kBroken.size(); ++i) {
    open();
    for (const auto& packet : kBroken[i]) (void)receive(packet);
    EXPECT_EQ(answers(), Lines{fmt::format("Acknowledge {} nak 1", kBroken[i].size() - 1)}) << i;
    EXPECT_TRUE(responder_->failed()) << i;
    EXPECT_EQ(done().back(), "fail 13") << i;
  }
}

TEST_F(RcResponderTest, AnswersAreNoRequests) {
  EXPECT_EQ(receive(ack_packet(0)), DropReason::kBadOpcode);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 1)), DropReason::kBadOpcode);
  EXPECT_EQ(answers(), Lines{});
}

}  // namespace
}  // namespace verbena::engine
