// Messages that don't fit the receive they meet, and receives that are at fault themselves.
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 65536;

class ReceiveErrors : public PairTest {
 protected:
  void set() {
    open_connected();
    from_ = a().add_buffer(kSize);
    to_ = b().add_buffer(kSize);
    a().fill(from_, 1);
    b().fill(to_, 2);
  }
  // A SEND of that many bytes, and one more behind it.
  void send(uint64_t length) {
    SendOrder second = send_of(2, {from_.piece(0, 8)});
    second.flags = 0;
    EXPECT_EQ(0, a().post_sends({send_of(1, {from_.piece(0, length)}), second}).error);
  }
  void expect_sender_fails(ibv_wc_status status) {
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, status));
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(no_event(a(), kNow));
  }
  // The first receive tells why, the others are flushed.
  void expect_receiver_fails(ibv_wc_status status, Wait patience = kMoment) {
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, status));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 12, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
    EXPECT_TRUE(no_event(b(), patience));
    EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, patience));
  }

  Buffer from_;
  Buffer to_;
};
RC_IN_BOTH(ReceiveErrors);

struct TooLong {
  uint64_t message;
  uint64_t receive;
};

TEST_P(ReceiveErrors, MessageLongerThanItsReceive) {
  for (const auto& [message, receive] :
       {TooLong{1, 0}, TooLong{65, 64}, TooLong{8193, 8192}, TooLong{8192, 100}, TooLong{20000, 19999}}) {
    SCOPED_TRACE(message);
    set();
    ASSERT_EQ(0, b().post_receive(11, {to_.piece(0, receive)}));
    ASSERT_EQ(0, b().post_receive(12, {to_.all()}));
    send(message);
    expect_sender_fails(IBV_WC_REM_INV_REQ_ERR);
    expect_receiver_fails(IBV_WC_LOC_LEN_ERR, kNow);
  }
}

// The sender knows of receives in advance, so the first one that is too short may come late.
TEST_P(ReceiveErrors, ShortReceiveAfterLongOnes) {
  set();
  for (const uint64_t wr_id : {1, 2, 3}) ASSERT_EQ(0, b().post_receive(wr_id, {to_.piece(0, 256)}));
  ASSERT_EQ(0, b().post_receive(11, {to_.piece(0, 255)}));
  ASSERT_EQ(0, b().post_receive(12, {to_.piece(0, 256)}));
  for (const uint64_t wr_id : {1, 2, 3}) {
    ASSERT_EQ(0, a().post_send(send_of(wr_id, {from_.piece(0, 256)})));
    EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, wr_id, IBV_WC_SUCCESS));
  }
  send(256);
  expect_sender_fails(IBV_WC_REM_INV_REQ_ERR);
  expect_receiver_fails(IBV_WC_LOC_LEN_ERR);
}

TEST_P(ReceiveErrors, LongReceiveAfterShortOnes) {
  set();
  ASSERT_EQ(0, b().post_receive(1, {to_.piece(0, 10)}));
  ASSERT_EQ(0, b().post_receive(2, {to_.piece(0, 5000)}));
  for (const uint64_t wr_id : {1, 2}) {
    ASSERT_EQ(0, a().post_send(send_of(wr_id, {from_.piece(0, wr_id == 1 ? 10 : 5000)})));
    EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, wr_id, IBV_WC_SUCCESS));
  }
}

TEST_P(ReceiveErrors, ReceiveIntoMemoryThatMayNotBeWritten) {
  const auto with_key = [](ibv_sge piece, uint32_t lkey) {
    piece.lkey = lkey;
    return piece;
  };
  for (const uint64_t length : {uint64_t{1}, uint64_t{64}, uint64_t{8192}, uint64_t{20000}})
    for (const int cause : {0, 1, 2, 3, 4, 5}) {
      SCOPED_TRACE(testing::Message() << "cause " << cause << ", " << length << " bytes");
      set();
      ibv_sge piece = to_.all();
      if (cause == 0) piece = with_key(piece, 0x7fffff01);
      if (cause == 1) piece = to_.piece(1, kSize);  // ends past the region
      if (cause == 2) piece = b().add_buffer({.length = kSize, .access = 0}).all();
      if (cause == 3) piece = b().add_buffer({.length = kSize, .other_domain = true}).all();
      if (cause == 4) piece = with_key(piece, 0);
      ASSERT_EQ(0, b().post_receive(11, {piece}));
      ASSERT_EQ(0, b().post_receive(12, {to_.all()}));
      if (cause == 5) {
        ASSERT_EQ(0, b().deregister(to_));  // after it was posted
      }
      send(cause == 1 ? kSize : length);
      expect_sender_fails(IBV_WC_REM_OP_ERR);
      expect_receiver_fails(IBV_WC_LOC_PROT_ERR, kNow);
      if (HasFailure()) return;
    }
}

// Only what the message reaches is looked at, as an adapter does.
TEST_P(ReceiveErrors, FaultThatTheMessageDoesNotReach) {
  set();
  ibv_sge wrong = to_.piece(4096, 4096);
  wrong.lkey = 0x7fffff01;
  for (const uint64_t wr_id : {11, 12, 13})
    ASSERT_EQ(0, b().post_receive(wr_id, {to_.piece(0, 4096), wrong}));
  SendOrder write = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 3, {from_.piece(0, 8192)}, to_, 16384);
  ASSERT_EQ(0, a().post_sends({send_of(1, {from_.piece(0, 4096)}), send_of(2, {}), write}).error);
  for (const uint64_t wr_id : {1, 2, 3}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
  for (const uint64_t wr_id : {11, 12, 13}) EXPECT_TRUE(next_is(b(), Queue::kReceive, wr_id, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b().mismatch(to_, 0, 4096, 1));
}

// The second of two pieces is at fault and needed: nothing of the message counts.
TEST_P(ReceiveErrors, FaultInALaterPiece) {
  set();
  ibv_sge wrong = to_.piece(4096, 4096);
  wrong.lkey = 0x7fffff01;
  ASSERT_EQ(0, b().post_receive(11, {to_.piece(0, 4096), wrong}));
  ASSERT_EQ(0, b().post_receive(12, {to_.all()}));
  send(4097);
  expect_sender_fails(IBV_WC_REM_OP_ERR);
  expect_receiver_fails(IBV_WC_LOC_PROT_ERR);
}

// Receives that peers were promised, and whose region went since: whatever the sender hears, the receiver
// doesn't see a message in memory it took back.
TEST_P(ReceiveErrors, RegionGivenBackBehindAPromise) {
  set();
  const Buffer gone = b().add_buffer(4096);
  ASSERT_EQ(0, b().post_receive(1, {to_.piece(0, 64)}));
  ASSERT_EQ(0, b().post_receive(11, {gone.piece(0, 64)}));
  ASSERT_EQ(0, b().post_receive(12, {to_.piece(0, 64)}));
  ASSERT_EQ(0, a().post_send(send_of(1, {from_.piece(0, 64)})));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 1, IBV_WC_SUCCESS));
  ASSERT_EQ(0, b().deregister(gone));
  b().fill(gone, 3);
  ASSERT_EQ(0, a().post_send(send_of(2, {from_.piece(0, 64)})));
  const ibv_wc sent = a().next(Queue::kSend);
  EXPECT_TRUE(sent.status == IBV_WC_SUCCESS || sent.status == IBV_WC_REM_OP_ERR) << sent.status;
  expect_receiver_fails(IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(-1, b().mismatch(gone, 0, 4096, 3));
}

// What the sender was told has arrived stays there, whatever happens to the receiver's queue pair before the
// program polls.
TEST_P(ReceiveErrors, ArrivedMessagesSurviveTheErrorState) {
  for (const bool by_own_fault : {false, true}) {
    SCOPED_TRACE(by_own_fault ? "a request of its own failed" : "moved to ERR");
    set();
    for (const uint64_t wr_id : {11, 12, 13, 14}) ASSERT_EQ(0, b().post_receive(wr_id, {to_.all()}));
    for (const uint64_t wr_id : {1, 2, 3}) {
      const uint64_t length = wr_id == 3 ? 20000 : 40 * wr_id;
      ASSERT_EQ(0, a().post_send(send_of(wr_id, {from_.piece(0, length)})));
      EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    }
    if (by_own_fault) {
      SendOrder bad = rdma(IBV_WR_RDMA_WRITE, 5, {to_.piece(0, 8)}, from_);
      bad.pieces.list[0].lkey = 0;
      ASSERT_EQ(0, b().post_send(bad));
      EXPECT_TRUE(next_is(b(), Queue::kSend, 5, IBV_WC_LOC_PROT_ERR));
    } else {
      ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
    }
    for (const uint64_t wr_id : {11, 12, 13})
      EXPECT_TRUE(next_is(b(), Queue::kReceive, wr_id, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 14, IBV_WC_WR_FLUSH_ERR));
  }
}

}  // namespace
}  // namespace verbena::rc
