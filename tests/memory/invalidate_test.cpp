// LOCAL_INV and SEND with invalidate: what they close, what they say, and what they refuse.
#include "window_pair.hpp"

namespace verbena::rc {
namespace {

class InvalidateTest : public WindowPair {
 protected:
  [[nodiscard]] static SendOrder invalidation(ibv_wr_opcode opcode, uint32_t rkey,
                                              const Pieces& pieces = {}) {
    return {.opcode = opcode, .imm = rkey, .pieces = pieces};
  }
  void refuses_local(uint32_t rkey) {
    EXPECT_EQ(0, b().post_send(invalidation(IBV_WR_LOCAL_INV, rkey)));
    EXPECT_TRUE(next_is(b(), Queue::kSend, 1, IBV_WC_MW_BIND_ERR));
    reconnect();
  }
  // The receive that it would have had ends with an error, so there is no event.
  void refuses_remote(uint32_t rkey) {
    EXPECT_EQ(0, b().post_receive(4));
    EXPECT_EQ(0, a().post_send(invalidation(IBV_WR_SEND_WITH_INV, rkey)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 4, IBV_WC_LOC_ACCESS_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
    reconnect();
  }
};
RC_IN_BOTH(InvalidateTest);

TEST_P(InvalidateTest, LocallyInItsTurn) {
  prepare();
  for (int round = 0; round < 5; ++round) {
    const Window window = bound(IBV_MW_TYPE_2, 0, 4096);
    EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
    ASSERT_EQ(0, b().post_send(invalidation(IBV_WR_LOCAL_INV, window.rkey)));
    const ibv_wc completion = b().next(Queue::kSend);
    EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
    EXPECT_EQ(IBV_WC_LOCAL_INV, completion.opcode);
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
    reconnect();
    const Window again = bind(order(window, 4096, 4096));  // free for another bind
    EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, again.rkey, memory_.address + 4096, 8)));
    EXPECT_EQ(0, b().remove_window(again));
  }
  EXPECT_EQ(0, b().deregister(memory_));
}

TEST_P(InvalidateTest, ByAPeersSend) {
  for (const uint64_t length : {0, 8, 1024, 1025, 60000}) {
    prepare();
    const Buffer receive = b().add_buffer(kRegion);
    const Window window = bound(IBV_MW_TYPE_2, 0, 4096);
    EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
    ASSERT_EQ(0, b().post_receive(4, {receive.all()}));
    a().fill(local_, 5);
    ASSERT_TRUE(works(invalidation(IBV_WR_SEND_WITH_INV, window.rkey, {local_.piece(0, length)})));
    const ibv_wc completion = b().next(Queue::kReceive);
    EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
    EXPECT_EQ(IBV_WC_RECV, completion.opcode);
    EXPECT_EQ(static_cast<unsigned>(IBV_WC_WITH_INV), completion.wc_flags);
    EXPECT_EQ(window.rkey, completion.invalidated_rkey);
    EXPECT_EQ(length, completion.byte_len);
    EXPECT_EQ(-1, b().mismatch(receive, 0, length, 5));
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
    EXPECT_EQ(0, b().deregister(memory_)) << "nothing is bound to it any more";
  }
}

// Requests behind it on the same connection find the window closed, though the receiver hasn't polled.
TEST_P(InvalidateTest, AtOnceForWhatFollows) {
  for (const uint64_t length : {8, 4096}) {
    prepare();
    const Window closed = bound(IBV_MW_TYPE_2, 0, 4096);
    const Window open = bound(IBV_MW_TYPE_2, 4096, 4096);
    ASSERT_EQ(0, b().post_receive(4));
    const SendOrder before = with_key(IBV_WR_RDMA_WRITE, closed.rkey, memory_.address, length);
    SendOrder end = invalidation(IBV_WR_SEND_WITH_INV, closed.rkey);
    end.wr_id = 2;
    SendOrder other = with_key(IBV_WR_RDMA_WRITE, open.rkey, memory_.address + 4096, length);
    other.wr_id = 3;
    SendOrder late = with_key(IBV_WR_RDMA_WRITE, closed.rkey, memory_.address, length);
    late.wr_id = 4;
    late.pieces = {local_.piece(8192, length)};
    a().set_word(local_, 0, 77);
    a().set_word(local_, 8192, 78);
    ASSERT_EQ(0, a().post_sends({before, end, other, late}).error);
    for (const uint64_t wr_id : {1, 2, 3}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 4, IBV_WC_REM_ACCESS_ERR));
    EXPECT_EQ(77u, b().word(memory_));
  }
}

// While a peer writes through it, and with sends of our own under way.
TEST_P(InvalidateTest, LocallyUnderTraffic) {
  prepare();
  const Buffer text = b().add_buffer(64);
  for (int round = 0; round < 20; ++round) {
    const Window window = bound(IBV_MW_TYPE_2, 0, kRegion);
    for (int i = 0; i < 8; ++i)
      ASSERT_EQ(0, a().post_send(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, kRegion)));
    for (int i = 0; i < 4; ++i)
      ASSERT_EQ(0, b().post_send({.opcode = IBV_WR_RDMA_WRITE,
                                  .remote_address = local_.address,
                                  .rkey = local_.rkey,
                                  .pieces = {text.all()}}));
    ASSERT_EQ(0, b().post_send(invalidation(IBV_WR_LOCAL_INV, window.rkey)));
    ASSERT_EQ(8, a().poll(Queue::kSend, 8).count);
    ASSERT_EQ(5, b().poll(Queue::kSend, 5).count);
    ASSERT_EQ(0, b().remove_window(window));
    reconnect();
    while (b().next_event(kNow).came) {
    }
  }
}

// A READ before it, long as it may be, is answered whole.
TEST_P(InvalidateTest, NotUnderAReadBeforeIt) {
  prepare();
  b().fill(memory_, 9);
  for (int round = 0; round < 10; ++round) {
    const Window window = bound(IBV_MW_TYPE_2, 0, kRegion);
    ASSERT_EQ(0, b().post_receive(4));
    SendOrder end = invalidation(IBV_WR_SEND_WITH_INV, window.rkey);
    end.wr_id = 2;
    ASSERT_EQ(0,
              a().post_sends({with_key(IBV_WR_RDMA_READ, window.rkey, memory_.address, kRegion), end}).error);
    ASSERT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(b(), Queue::kReceive, 4, IBV_WC_SUCCESS));
    EXPECT_EQ(-1, a().mismatch(local_, 0, kRegion, 9));
    ASSERT_EQ(0, b().remove_window(window));
  }
}

TEST_P(InvalidateTest, WhatCantBe) {
  prepare();
  const Window one = bound(IBV_MW_TYPE_1, 0, 4096);
  const Window free = b().add_window(IBV_MW_TYPE_2);
  const Window two = bound(IBV_MW_TYPE_2, 0, 4096);
  for (const uint32_t rkey : {memory_.rkey, one.rkey, free.rkey, two.rkey ^ 1, 0u, 0x7fffff01u, ~0u}) {
    refuses_local(rkey);
    refuses_remote(rkey);
  }
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, one.rkey, memory_.address, 8)));
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, two.rkey, memory_.address, 8)));
}

TEST_P(InvalidateTest, AWindowOfAnotherQueuePair) {
  prepare();
  Side other(there());
  Side from(here_);
  rc::connect(from, other);
  const Window window = bound(IBV_MW_TYPE_2, 0, 4096);
  ASSERT_EQ(0, other.post_receive(4));
  ASSERT_EQ(0, from.post_send(invalidation(IBV_WR_SEND_WITH_INV, window.rkey)));
  EXPECT_TRUE(next_is(from, Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
}

}  // namespace
}  // namespace verbena::rc
