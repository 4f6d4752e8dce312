// XRC: both sides of a reliable connection whose requests name a shared receive queue.
#include "requester_script.hpp"
#include "responder_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

constexpr auto kXrc = roce::Service::kXrc;

class XrcRequesterTest : public RequesterScript {
 protected:
  void SetUp() override {
    auto config = usual();
    config.service = kXrc;
    open(config);
  }
  void post(Request request, uint32_t srq) {
    request.address = 0x1000;
    request.srq = srq;
    requester_->post(request);
  }
};

TEST_F(XrcRequesterTest, EveryRequestPacketNamesItsQueue) {
  post({.kind = Request::Kind::kSend, .length = 300}, 0xab);
  post({.kind = Request::Kind::kWrite, .has_imm = true, .imm = 9, .length = 600}, 0xcd);
  post({.kind = Request::Kind::kRead, .length = 300}, 0xab);
  post({.kind = Request::Kind::kFetchAdd, .length = 8}, 0xcd);
  post({.kind = Request::Kind::kCompareSwap, .length = 8}, 0xffffff);
  EXPECT_EQ(sent(),
            (Lines{"XRC SendFirst 0 srq ab 256B", "XRC SendLast 1 srq ab 44B",
                   "XRC WriteFirst 2 srq cd @1000+600 256B", "XRC WriteMiddle 3 srq cd 256B",
                   "XRC WriteLastImm 4 srq cd ack imm 9 88B", "XRC ReadRequest 5 srq ab ack @1000+300",
                   "XRC FetchAdd 7 srq cd ack", "XRC CompareSwap 8 srq ffffff ack"}));
}

TEST_F(XrcRequesterTest, TakesAnswersOfItsOwnServiceOnly) {
  post({.kind = Request::Kind::kSend, .length = 1}, 1);
  post({.kind = Request::Kind::kRead, .length = 10}, 1);
  post({.kind = Request::Kind::kFetchAdd, .length = 8}, 2);
  (void)sent();
  const roce::Packet answers[] = {ack_packet(0), response_packet(Operation::kReadResponseOnly, 1, 10),
                                  atomic_ack_packet(2, 5)};
  for (const auto& answer : answers) {
    EXPECT_EQ(receive(answer), DropReason::kBadOpcode);
    EXPECT_EQ(ended(), Lines{});
  }
  for (const auto& answer : answers) EXPECT_EQ(receive(xrc_packet(answer)), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1", "2"}));
}

TEST_F(XrcRequesterTest, ARequestIsNoAnswer) {
  post({.kind = Request::Kind::kSend, .length = 1}, 1);
  (void)sent();
  EXPECT_EQ(receive(xrc_packet(request_packet(Operation::kSendOnly, 0, 1), 1)), DropReason::kBadOpcode);
  EXPECT_EQ(ended(), Lines{});
}

TEST_F(XrcRequesterTest, WhatIsSentAgainNamesTheSameQueue) {
  post({.kind = Request::Kind::kSend, .length = 300}, 1);
  post({.kind = Request::Kind::kRead, .length = 10}, 2);
  const Lines first = sent();
  EXPECT_EQ(receive(xrc_packet(ack_packet(0, roce::syndrome::kSequence))), DropReason::kNone);
  Lines again = sent();
  ASSERT_EQ(again.size(), first.size());
  EXPECT_EQ(again[0], "XRC SendFirst 0 srq 1 ack 256B");
  EXPECT_EQ(again[2], first[2]);
}

TEST_F(XrcRequesterTest, AQueueThatIsntThereIsARemoteInvalidRequest) {
  post({.kind = Request::Kind::kSend, .length = 1}, 1);
  (void)sent();
  EXPECT_EQ(receive(xrc_packet(ack_packet(0, roce::syndrome::kInvalidRequest))), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{fmt::format("0 status {}", static_cast<int>(RequestStatus::kRemoteInvalid))});
}

// The reliable connection's own requester refuses what XRC answers.
TEST_F(RequesterScript, AnswersOfXrcAreNotForRc) {
  open(usual());
  send(1);
  (void)sent();
  EXPECT_EQ(receive(xrc_packet(ack_packet(0))), DropReason::kBadOpcode);
  EXPECT_EQ(ended(), Lines{});
}

class XrcResponderTest : public ResponderScript {
 protected:
  void SetUp() override { open(4, kXrc); }
  DropReason receive(const roce::Packet& packet, uint32_t srq) {
    return ResponderScript::receive(xrc_packet(packet, srq));
  }
  Lines fails(Verdict verdict) { return {fmt::format("fail {}", static_cast<int>(verdict))}; }
};

TEST_F(XrcResponderTest, EachMessageIsAimedOnce) {
  actions_.receives = 3;  // never told
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 10), 7), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 1, kMtu), 8), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 2, 1), 8), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 3, 0), 8), DropReason::kNone);
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnlyImm, 4, 10, 10), 7), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"aim 7", "deliver 10", "aim 8", "begin", "place 0+256", "place 256+1 last",
                           "finish 257", "aim 8", "deliver 0", "aim 7", "check write 1000+10", "begin imm",
                           "write 1000+10 last", "finish 10"}));
  EXPECT_EQ(answers(), Lines{"XRC Acknowledge 4"});
}

TEST_F(XrcResponderTest, AnswersAreOfItsService) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 600), 7), DropReason::kNone);
  EXPECT_EQ(receive(add_packet(3, 5), 8), DropReason::kNone);
  EXPECT_EQ(answers(), (Lines{"XRC ReadResponseFirst 0 256B", "XRC ReadResponseMiddle 1 256B",
                              "XRC ReadResponseLast 2 88B", "XRC AtomicAcknowledge 3 before 0"}));
  EXPECT_EQ(done(), (Lines{"aim 7", "check read 1000+600", "aim 8", "add 5", "aim 7"}));
}

// Between two packets of a message a READ before it, of another queue, is answered.
TEST_F(XrcResponderTest, AMessageGoesOnAfterAnAnswerOfAnotherQueue) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 7), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 1, kMtu), 8), DropReason::kNone);
  EXPECT_EQ(answers().size(), 1u);
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 2, 1), 8), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"aim 7", "check read 1000+10", "aim 8", "begin", "place 0+256", "aim 7", "aim 8",
                           "place 256+1 last", "finish 257"}));
}

TEST_F(XrcResponderTest, AQueueThatIsntThereIsAnInvalidRequest) {
  for (const auto& packet :
       {request_packet(Operation::kSendOnly, 0, 1), read_packet(0, 0x1000, 1), add_packet(0, 1),
        write_packet(Operation::kWriteOnly, 0, 1, 1), write_packet(Operation::kWriteOnlyImm, 0, 1, 1)}) {
    open(4, kXrc);
    actions_.aim_says = Verdict::kNoSharedQueue;
    EXPECT_EQ(receive(packet, 9), DropReason::kNone);
    EXPECT_EQ(done().front(), "miss 9");
    EXPECT_TRUE(responder_->failed());
    EXPECT_EQ(answers(), Lines{"XRC Acknowledge 0 nak 1"});
  }
}

TEST_F(XrcResponderTest, AFailureIsToldToTheQueueThatItIsOf) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 7), DropReason::kNone);
  (void)done();
  actions_.next = Verdict::kNoAccess;
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnlyImm, 1, 1, 1), 8), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"aim 8"});
  EXPECT_EQ(answers(), (Lines{"XRC ReadResponseOnly 0 10B", "XRC Acknowledge 1 nak 2"}));
  EXPECT_EQ(done(), (Lines{"aim 7", "aim 8", fails(Verdict::kNoAccess)[0]}));
}

TEST_F(XrcResponderTest, AFailureWaitsForRoomToAim) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 7), DropReason::kNone);
  actions_.next = Verdict::kNoAccess;
  EXPECT_EQ(receive(add_packet(1, 1), 8), DropReason::kNone);
  sink_.set_ready(true);
  ASSERT_TRUE(responder_->poll_transmit(at_us(0), sink_));  // the READ's answer
  (void)done();
  actions_.aim_says = Verdict::kNoRoom;
  ASSERT_TRUE(responder_->poll_transmit(at_us(0), sink_));  // the NAK
  EXPECT_EQ(done(), Lines{"miss 8"});
  EXPECT_TRUE(responder_->has_answers());
  (void)responder_->poll_transmit(at_us(0), sink_);
  EXPECT_EQ(done(), (Lines{"aim 8", fails(Verdict::kNoAccess)[0]}));
  EXPECT_FALSE(responder_->has_answers());
}

TEST_F(XrcResponderTest, TheQueueMustStayTheSameWithinAMessage) {
  for (const bool send : {true, false}) {
    open(4, kXrc);
    EXPECT_EQ(receive(send ? request_packet(Operation::kSendFirst, 0, kMtu)
                           : write_packet(Operation::kWriteFirst, 0, kMtu + 1, kMtu),
                      7),
              DropReason::kNone);
    (void)done();
    EXPECT_EQ(receive(request_packet(send ? Operation::kSendLast : Operation::kWriteLast, 1, 1), 8),
              DropReason::kNone);
    EXPECT_EQ(done(), fails(Verdict::kBadSequence));
    EXPECT_EQ(answers(), Lines{"XRC Acknowledge 1 nak 1"});
  }
}

TEST_F(XrcResponderTest, NoReceiveAndNoRoomAreAsWithRc) {
  actions_.next = Verdict::kNotReady;
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1), 7), DropReason::kNotReady);
  EXPECT_EQ(answers(), Lines{"XRC Acknowledge 0 rnr 9"});
  actions_.aim_says = Verdict::kNoRoom;
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1), 7), DropReason::kNoRoom);
  EXPECT_EQ(answers(), Lines{});
  (void)done();
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1), 7), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"aim 7", "deliver 1"}));
  EXPECT_EQ(answers(), Lines{"XRC Acknowledge 0"});
}

TEST_F(XrcResponderTest, AReadIsAnsweredAgainFromItsOwnQueueOnly) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 7), DropReason::kNone);
  EXPECT_EQ(receive(add_packet(1, 5), 8), DropReason::kNone);
  (void)answers();
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 8), DropReason::kReplayForgotten);
  EXPECT_EQ(answers(), Lines{});
  EXPECT_EQ(receive(read_packet(0, 0x1000, 10), 7), DropReason::kDuplicate);
  EXPECT_EQ(receive(add_packet(1, 5), 8), DropReason::kDuplicate);
  EXPECT_EQ(answers(), (Lines{"XRC ReadResponseOnly 0 10B", "XRC AtomicAcknowledge 1 before 0"}));
  EXPECT_EQ(actions_.counter, 5u);
}

TEST_F(XrcResponderTest, AQueueThatGoesAwayUnderAReadEndsIt) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 300), 7), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 1), 8), DropReason::kNone);
  actions_.aim_says = Verdict::kNoSharedQueue;
  EXPECT_EQ(answers(), Lines{"XRC Acknowledge 0 nak 1"});
  EXPECT_TRUE(responder_->failed());
}

TEST_F(XrcResponderTest, RequestsOfAnotherServiceAreDropped) {
  EXPECT_EQ(ResponderScript::receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kBadOpcode);
  EXPECT_EQ(receive(ack_packet(0), 0), DropReason::kBadOpcode);
  open(4, roce::Service::kRc);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1), 7), DropReason::kBadOpcode);
  EXPECT_EQ(done(), Lines{});
  EXPECT_EQ(answers(), Lines{});
}

}  // namespace
}  // namespace verbena::engine
