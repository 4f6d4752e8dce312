// SEND with invalidate and ATOMIC WRITE: both sides of them.
#include "requester_script.hpp"
#include "responder_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

roce::Packet invalidating(Operation operation, uint32_t psn, size_t payload) {
  auto packet = request_packet(operation, psn, payload);
  packet.invalidate_key = 0xabc01;
  return packet;
}

std::byte value[8] = {std::byte{1}, std::byte{2}};

roce::Packet atomic_write_packet(uint32_t psn, uint32_t length = 8, size_t payload = 8) {
  auto packet = request_packet(Operation::kAtomicWrite, psn);
  packet.reth = {0x1000, 7, length};
  packet.payload = std::span(value).first(payload);
  return packet;
}

class RcMemoryResponderTest : public ResponderScript {};

TEST_F(RcMemoryResponderTest, TheLastPacketSaysWhatToInvalidate) {
  EXPECT_EQ(receive(invalidating(Operation::kSendOnlyInvalidate, 0, 1)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"deliver 1 invalidates abc01"});
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 1, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(invalidating(Operation::kSendLastInvalidate, 2, 9)), DropReason::kNone);
  EXPECT_EQ(done().back(), "finish 265 invalidates abc01");
}

TEST_F(RcMemoryResponderTest, AKeyThatCantBeInvalidatedIsARemoteAccessError) {
  actions_.next = Verdict::kNotWindow;
  EXPECT_EQ(receive(invalidating(Operation::kSendOnlyInvalidate, 0, 1)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 2"});
  EXPECT_TRUE(responder_->failed());
}

TEST_F(RcMemoryResponderTest, NothingIsInvalidatedUnderARead) {
  EXPECT_EQ(receive(read_packet(0, 0x1000, 300)), DropReason::kNone);
  EXPECT_EQ(receive(invalidating(Operation::kSendOnlyInvalidate, 2, 1)), DropReason::kNoRoom);
  EXPECT_EQ(done(), Lines{"check read 1000+300"});
  EXPECT_EQ(answers().size(), 2u);
  EXPECT_EQ(receive(invalidating(Operation::kSendOnlyInvalidate, 2, 1)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"deliver 1 invalidates abc01"});
}

TEST_F(RcMemoryResponderTest, AnAtomicWriteIsAnsweredAsAnEmptyRead) {
  EXPECT_EQ(receive(atomic_write_packet(0)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"store 201 at 1000"});
  const Lines answer = answers();
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].find("ReadResponseOnly 0"), 0u) << answer[0];
  // Asked for again it is answered again, and not carried out again.
  EXPECT_EQ(receive(atomic_write_packet(0)), DropReason::kDuplicate);
  EXPECT_EQ(answers(), answer);
  EXPECT_EQ(done(), Lines{});
}

TEST_F(RcMemoryResponderTest, AnAtomicWriteHasEightBytes) {
  for (const auto& [length, payload] : {std::pair{8u, 4u}, {4u, 4u}, {16u, 8u}, {8u, 0u}}) {
    open();
    EXPECT_EQ(receive(atomic_write_packet(0, length, payload)), DropReason::kNone);
    EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 1"});
  }
  EXPECT_EQ(done(), Lines(4, "fail 13"));
}

TEST_F(RcMemoryResponderTest, ARefusedAtomicWriteLeavesNothingToAnswer) {
  actions_.next = Verdict::kNoAccess;
  EXPECT_EQ(receive(atomic_write_packet(0)), DropReason::kNone);
  EXPECT_EQ(answers(), Lines{"Acknowledge 0 nak 2"});
}

class RcMemoryRequesterTest : public RequesterScript {
 protected:
  void SetUp() override { open(usual()); }
  void atomic_write() {
    requester_->post({.kind = Request::Kind::kAtomicWrite, .key = 7, .address = 0x1000, .length = 8});
  }
};

TEST_F(RcMemoryRequesterTest, AnAtomicWriteEndsWithItsEmptyAnswer) {
  atomic_write();
  const Lines packets = sent();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].find("AtomicWrite 0"), 0u) << packets[0];
  EXPECT_EQ(ack(0), DropReason::kNone) << "an acknowledgement alone isn't its answer";
  EXPECT_EQ(ended(), Lines{});
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 0)), DropReason::kNone);
  EXPECT_EQ(ended().size(), 1u);
}

TEST_F(RcMemoryRequesterTest, AnAnswerWithBytesIsNone) {
  atomic_write();
  (void)sent();
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 8)), DropReason::kBadAnswer);
}

TEST_F(RcMemoryRequesterTest, WhatInvalidatesWaitsForReads) {
  read(10);
  requester_->post({.kind = Request::Kind::kSend, .invalidates = true, .imm = 0xabc01, .length = 3});
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(receive(response_packet(Operation::kReadResponseOnly, 0, 10)), DropReason::kNone);
  const Lines packets = sent();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].find("SendOnlyInvalidate 1"), 0u) << packets[0];
}

}  // namespace
}  // namespace verbena::engine
