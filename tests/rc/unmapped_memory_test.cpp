// Memory that a program unmaps while it is registered, on either side: an adapter has it pinned, we don't. A
// defined status comes, and nobody crashes.
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 1 << 20;
constexpr uint64_t kPage = 4096;
const uint64_t kLengths[] = {1, 32, 64, 8192, 20000, 600'000};

class UnmappedMemory : public PairTest {
 protected:
  void set(Backing backing = Backing::kPrivate) {
    open_connected();
    local_ = a().add_buffer({.length = kSize, .backing = backing});
    remote_ = b().add_buffer({.length = kSize, .backing = backing});
    a().fill(local_, 1);
    b().fill(remote_, 2);
  }
  Buffer local_;
  Buffer remote_;
};
RC_IN_BOTH(UnmappedMemory);

TEST_P(UnmappedMemory, AtTheRequester) {
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
    for (const uint64_t length : kLengths) {
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << length << " bytes");
      set();
      ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
      ASSERT_EQ(0, a().unmap(local_, 0, kSize));
      ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local_.piece(0, length)}, remote_)));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_LOC_PROT_ERR));
      EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
      EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
      EXPECT_TRUE(no_event(b(), kNow));
      EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, kNow));
      if (HasFailure()) return;
    }
}

// It was there a moment ago: proofs of that must not last.
TEST_P(UnmappedMemory, RightAfterItWasUsed) {
  for (const bool reading : {false, true}) {
    set();
    const auto opcode = reading ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local_.piece(0, 64)}, remote_)));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    }
    ASSERT_EQ(0, a().unmap(local_, 0, kSize));
    ASSERT_EQ(0, a().post_send(rdma(opcode, 2, {local_.piece(0, 64)}, remote_)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_LOC_PROT_ERR));
  }
}

TEST_P(UnmappedMemory, AtTheTarget) {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD})
    for (const uint64_t length : kLengths) {
      const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
      if (atomic && length != 1) continue;
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << length << " bytes");
      set();
      ASSERT_EQ(0, b().unmap(remote_, 0, kSize));
      ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local_.piece(0, atomic ? 8 : length)}, remote_)));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
      EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
      EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
      EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
      if (HasFailure()) return;
    }
}

// Shared memory stays reachable for peers that mapped it, as pinned pages do; if it isn't, the status is the
// one for private memory.
TEST_P(UnmappedMemory, SharedMemoryAtTheTarget) {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
    for (const uint64_t length : {uint64_t{64}, uint64_t{600'000}}) {
      set(Backing::kShared);
      ASSERT_EQ(0, b().unmap(remote_, 0, kSize));
      ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local_.piece(0, length)}, remote_)));
      const ibv_wc found = a().next(Queue::kSend);
      EXPECT_TRUE(found.status == IBV_WC_SUCCESS || found.status == IBV_WC_REM_ACCESS_ERR) << found.status;
      if (found.status != IBV_WC_SUCCESS) {
        EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
      }
    }
}

// The hole is in the middle: what lies before it may have been written, nothing behind it.
TEST_P(UnmappedMemory, HoleInTheTarget) {
  set();
  const uint64_t hole = 128 * kPage;
  b().fill(remote_, kSize - 8, 8, 3);
  ASSERT_EQ(0, b().unmap(remote_, hole, kPage));
  ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local_.all()}, remote_)));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
  EXPECT_EQ(-1, b().mismatch(remote_, kSize - 8, 8, 3)) << "the end of a message that never arrived";
}

TEST_P(UnmappedMemory, UnderAReceive) {
  for (const uint64_t length : kLengths) {
    SCOPED_TRACE(length);
    set();
    ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
    ASSERT_EQ(0, b().post_receive(12, {remote_.all()}));
    ASSERT_EQ(0, b().unmap(remote_, 0, kSize));
    ASSERT_EQ(0, a().post_send(send_of(1, {local_.piece(0, length)})));
    // A short message is placed when the receiver polls, after the sender was told: then it was sent well.
    const ibv_wc sent = a().next(Queue::kSend);
    if (length > 8192)
      EXPECT_EQ(IBV_WC_REM_OP_ERR, sent.status);
    else
      EXPECT_TRUE(sent.status == IBV_WC_SUCCESS || sent.status == IBV_WC_REM_OP_ERR) << sent.status;
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_LOC_PROT_ERR));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 12, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
  }
}

}  // namespace
}  // namespace verbena::rc
