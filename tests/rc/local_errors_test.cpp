// Requests that fail at the requester itself: the responder must not notice.
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 65536;
constexpr uint64_t kSmall = 64;
constexpr uint64_t kLarge = 20000;

class LocalErrors : public PairTest {
 protected:
  void set() {
    open_connected();
    prepare();
  }
  void prepare() {
    local_ = a().add_buffer(kSize);
    remote_ = b().add_buffer(kSize);
    a().fill(local_, 1);
    b().fill(remote_, 2);
    EXPECT_EQ(0, b().post_receive(11, {remote_.all()}));
    EXPECT_EQ(0, a().post_receive(21, {local_.all()}));
  }

  // One request fails, the one behind it and the receive are flushed; the responder sees nothing of it.
  void expect_local(SendOrder order, ibv_wc_status status) {
    order.wr_id = 1;
    SendOrder second = send_of(2, {local_.piece(0, 8)});
    second.flags = 0;
    EXPECT_EQ(0, a().post_sends({order, second}).error);
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, status));
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kReceive, 21, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(no_event(a(), kNow));

    EXPECT_TRUE(no_event(b(), kNow));
    EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, kNow));
    EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, kSize, 2));
  }

  Buffer local_;
  Buffer remote_;
};
RC_IN_BOTH(LocalErrors);

// LOC_LEN: more than a message may have. The memory is all there, so that nothing else is wrong.
TEST_P(LocalErrors, MessageOfMoreThanAGigabyte) {
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SCOPED_TRACE(opcode);
    set();
    const Buffer half = a().add_buffer(1ull << 29);
    expect_local(rdma(opcode, 1, {half.all(), half.all(), half.piece(0, 1)}, remote_), IBV_WC_LOC_LEN_ERR);
  }
}

TEST_P(LocalErrors, AtomicOfAnotherLengthThanEight) {
  for (const uint64_t length : {0, 4, 7, 9, 16}) {
    SCOPED_TRACE(length);
    set();
    expect_local(fetch_add(1, local_.piece(0, length), remote_, 0, 1), IBV_WC_LOC_LEN_ERR);
  }
  set();
  expect_local(compare_swap(1, local_.piece(0, 16), remote_, 0, 0, 1), IBV_WC_LOC_LEN_ERR);
}

// LOC_QP_OP: an operation that the queue pair wasn't set up for.
TEST_P(LocalErrors, ReadsAndAtomicsWithoutMaxRdAtomic) {
  for (const int what : {0, 1, 2}) {
    open();
    links_.a.max_rd_atomic = 0;
    connect();
    prepare();
    const SendOrder orders[] = {rdma(IBV_WR_RDMA_READ, 1, {local_.piece(0, 8)}, remote_),
                                fetch_add(1, local_.piece(0, 8), remote_, 0, 1),
                                compare_swap(1, local_.piece(0, 8), remote_, 0, 0, 1)};
    expect_local(orders[what], IBV_WC_LOC_QP_OP_ERR);
  }
}

// LOC_PROT: the scatter list names memory that this queue pair may not use so.
TEST_P(LocalErrors, BytesThatMayNotBeRead) {
  for (const auto opcode :
       {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ})
    for (const uint64_t length : {uint64_t{1}, kSmall, kLarge})
      for (const int cause : {0, 1, 2, 3, 4}) {
        SCOPED_TRACE(testing::Message()
                     << "opcode " << opcode << ", " << length << " bytes, cause " << cause);
        set();
        Buffer buffer = local_;
        uint64_t offset = 0;
        if (cause == 0) buffer.lkey = 0x7fffff01;
        if (cause == 1) offset = kSize - length + 1;
        if (cause == 2) buffer = a().add_buffer({.length = kSize, .other_domain = true});
        if (cause == 3) buffer.address -= length;
        if (cause == 4) {
          buffer = a().add_buffer(kSize);
          ASSERT_EQ(0, a().deregister(buffer));
        }
        expect_local(rdma(opcode, 1, {buffer.piece(offset, length)}, remote_), IBV_WC_LOC_PROT_ERR);
        if (HasFailure()) return;
      }
}

// With both ends' memory wrong, the requester's own is looked at first, and the responder hears of nothing.
TEST_P(LocalErrors, BothKeysAreWrong) {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ})
    for (const uint64_t length : {uint64_t{1}, kSmall, kLarge}) {
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << length << " bytes");
      set();
      SendOrder order = rdma(opcode, 1, {local_.piece(0, length)}, remote_);
      order.pieces.list[0].lkey = 0x7fffff01;
      order.rkey = 0x7fffff01;
      expect_local(order, IBV_WC_LOC_PROT_ERR);
    }
  set();
  SendOrder order = fetch_add(1, local_.piece(0, 8), remote_, 0, 1);
  order.pieces.list[0].lkey = 0x7fffff01;
  order.rkey = 0x7fffff01;
  expect_local(order, IBV_WC_LOC_PROT_ERR);
}

TEST_P(LocalErrors, OnlyOneOfManyPiecesIsWrong) {
  for (const uint64_t length : {uint64_t{8}, kLarge / 4}) {
    set();
    Pieces pieces{local_.piece(0, length), local_.piece(0, length), local_.piece(0, length)};
    pieces.list[1].lkey = 0;
    expect_local(rdma(IBV_WR_RDMA_WRITE, 1, pieces, remote_), IBV_WC_LOC_PROT_ERR);
  }
}

TEST_P(LocalErrors, ReadIntoMemoryWithoutLocalWrite) {
  for (const uint64_t length : {kSmall, kLarge}) {
    set();
    const Buffer sink = a().add_buffer({.length = kSize, .access = IBV_ACCESS_REMOTE_READ});
    a().fill(sink, 5);
    expect_local(rdma(IBV_WR_RDMA_READ, 1, {sink.piece(0, length)}, remote_), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(-1, a().mismatch(sink, 0, kSize, 5));
  }
}

// A region without LOCAL_WRITE is good enough to send from.
TEST_P(LocalErrors, SendFromMemoryWithoutLocalWrite) {
  set();
  const Buffer source = a().add_buffer({.length = kSize, .access = 0});
  a().fill(source, 9);
  ASSERT_EQ(0, a().post_sends({send_of(1, {source.piece(0, 100)}),
                               rdma(IBV_WR_RDMA_WRITE, 2, {source.piece(0, kLarge)}, remote_, 256)})
                   .error);
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b().mismatch(remote_, 0, 100, 9));
  EXPECT_EQ(-1, b().mismatch(remote_, 256, kLarge, 9));
}

// Where the old value can't be stored the operation fails; whether it ran is undefined, but it never runs
// twice.
TEST_P(LocalErrors, AtomicWhoseResultCannotBeStored) {
  for (const int cause : {0, 1}) {
    SCOPED_TRACE(cause);
    set();
    const Buffer target = b().add_buffer(64);
    b().set_word(target, 0, 100);
    ibv_sge result = local_.piece(0, 8);
    if (cause == 0) result.lkey = 0x7fffff01;
    if (cause == 1) result = a().add_buffer({.length = 64, .access = 0}).piece(0, 8);
    ASSERT_EQ(0, a().post_send(fetch_add(1, result, target, 0, 1)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_LOC_PROT_ERR));
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
    EXPECT_LE(b().word(target), 101u) << "it was added more than once";
  }
}

// Bytes of an inline request are taken when it is posted: they need no key.
TEST_P(LocalErrors, InlineNeedsNoKey) {
  set();
  SendOrder order = send_of(1, {local_.piece(0, 32), local_.piece(100, 8)});
  for (auto& piece : order.pieces.list) piece.lkey = 0x7fffff01;
  order.flags |= IBV_SEND_INLINE;
  ASSERT_EQ(0, a().post_send(order));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b().mismatch(remote_, 0, 32, 1));
}

}  // namespace
}  // namespace verbena::rc
