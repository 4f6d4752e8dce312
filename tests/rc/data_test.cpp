// Every operation that moves bytes, at sizes around the places where the way they go changes, with many
// shapes of scatter lists; every byte is looked at, on both ends, and those around it.
#include <algorithm>
#include <vector>

#include "pair_test.hpp"
#include "support/counters.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kMargin = 64;  // around everything that is written
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kLongest = 4 << 20;  // it looks at every byte that the test fills and compares
#else
constexpr uint64_t kLongest = 64 << 20;
#endif
const uint64_t kSizes[] = {
    0, 1, 7, 8, 31, 32, 33, 36, 4095, 4096, 8191, 8192, 8193, 65536, 262144, 262145, (1 << 20) + 3, kLongest};
const uint32_t kPieceCounts[] = {1, 2, 5, 32};
constexpr uint64_t kMostBytes = kLongest + 2 * kMargin;

struct Way {
  ibv_wr_opcode opcode;
  bool inlined;
};

// Cuts a range into `count` pieces of different lengths, some empty; 1 of nothing is no piece at all.
Pieces cut(const Buffer& buffer, uint64_t offset, uint64_t length, uint32_t count) {
  Pieces pieces;
  if (count == 1 && length == 0) return pieces;
  uint64_t done = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t rest = length - done;
    const uint64_t share =
        i + 1 == count ? rest : std::min(rest, i % 3 == 1 ? i % 2 : 2 * rest / (count - i + 1));
    pieces.add(buffer.piece(offset + done, share));
    done += share;
  }
  return pieces;
}

class DataTest : public PairTest {
 protected:
  void set(Backing backing = Backing::kPrivate, uint64_t bytes = kMostBytes) {
    open_connected();
    local_ = a().add_buffer({.length = bytes, .backing = backing});
    remote_ = b().add_buffer({.length = bytes, .backing = backing});
  }

  // Writes a pattern into what is sent and another around and into what is received.
  static void prepare(Side& from, const Buffer& source, Side& to, const Buffer& sink, uint64_t length,
                      uint64_t seed) {
    from.fill(source, kMargin, length, seed);
    to.fill(sink, 0, length + 2 * kMargin, seed + 1);
    // The margins alone, so that they can be compared by themselves.
    to.fill(sink, 0, kMargin, seed + 2);
    to.fill(sink, kMargin + length, kMargin, seed + 3);
  }
  static void expect_moved(Side& from, const Buffer& source, Side& to, const Buffer& sink, uint64_t length,
                           uint64_t seed) {
    EXPECT_EQ(-1, to.mismatch(sink, kMargin, length, seed));
    EXPECT_EQ(-1, to.mismatch(sink, 0, kMargin, seed + 2)) << "before it";
    EXPECT_EQ(-1, to.mismatch(sink, kMargin + length, kMargin, seed + 3)) << "behind it";
    EXPECT_EQ(-1, from.mismatch(source, kMargin, length, seed)) << "at its source";
  }

  void move(const Way& way, uint64_t length, uint32_t pieces, uint32_t receive_pieces) {
    ++seed_;
    const bool reading = way.opcode == IBV_WR_RDMA_READ;
    const bool receives = way.opcode != IBV_WR_RDMA_WRITE && !reading;
    const bool immediate = way.opcode == IBV_WR_SEND_WITH_IMM || way.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (reading)
      prepare(b(), remote_, a(), local_, length, seed_ * 10);
    else
      prepare(a(), local_, b(), remote_, length, seed_ * 10);
    if (receives) {
      ASSERT_EQ(0, b().post_receive(seed_, cut(remote_, kMargin, length, receive_pieces)));
    }
    SendOrder order = rdma(way.opcode, seed_, cut(local_, kMargin, length, pieces), remote_, kMargin);
    order.imm = static_cast<uint32_t>(seed_ * 0x9e3779b9);
    if (way.inlined) order.flags |= IBV_SEND_INLINE;
    ASSERT_EQ(0, a().post_send(order));
    if (way.inlined) a().fill(local_, kMargin, length, 12345);  // it is the program's again
    ASSERT_TRUE(next_is(a(), Queue::kSend, seed_, IBV_WC_SUCCESS));
    if (way.inlined) a().fill(local_, kMargin, length, seed_ * 10);
    if (receives) {
      const ibv_wc found = b().next(Queue::kReceive);
      ASSERT_EQ(IBV_WC_SUCCESS, found.status);
      EXPECT_EQ(seed_, found.wr_id);
      EXPECT_EQ(length, found.byte_len);
      EXPECT_EQ(immediate, (found.wc_flags & IBV_WC_WITH_IMM) != 0);
      if (immediate) {
        EXPECT_EQ(order.imm, found.imm_data);
      }
    }
    if (reading)
      expect_moved(b(), remote_, a(), local_, length, seed_ * 10);
    else
      expect_moved(a(), local_, b(), remote_, length, seed_ * 10);
  }

  void sweep(ibv_wr_opcode opcode) {
    set();
    for (const uint64_t length : kSizes)
      for (size_t i = 0; i < 4; ++i)
        for (const bool inlined : {false, true}) {
          if (inlined && (length > a().caps().max_inline_data || opcode == IBV_WR_RDMA_READ)) continue;
          SCOPED_TRACE(testing::Message() << length << " bytes, " << kPieceCounts[i] << " pieces"
                                          << (inlined ? ", inline" : ""));
          move({opcode, inlined}, length, kPieceCounts[i], kPieceCounts[(i + 1) % 4]);
          if (HasFailure()) return;
        }
  }

  Buffer local_;
  Buffer remote_;
  uint64_t seed_ = 0;
};
RC_IN_BOTH(DataTest);

TEST_P(DataTest, Send) { sweep(IBV_WR_SEND); }
TEST_P(DataTest, SendWithImmediate) { sweep(IBV_WR_SEND_WITH_IMM); }
TEST_P(DataTest, Write) { sweep(IBV_WR_RDMA_WRITE); }
TEST_P(DataTest, WriteWithImmediate) { sweep(IBV_WR_RDMA_WRITE_WITH_IMM); }
TEST_P(DataTest, Read) { sweep(IBV_WR_RDMA_READ); }

// Processes of one host that may map each other's segments leave the network alone, unless VERBENA_PATH says
// otherwise.
TEST_P(DataTest, GoesTheWayThatIsMeant) {
  sweep(IBV_WR_RDMA_WRITE);
  uint64_t packets = 0;
  for (int tries = 0; tries < (over_wire() ? 100 : 5) && packets == 0; ++tries) {
    (void)a().next(Queue::kSend, Wait(20));  // whoever polls shows what was counted
    packets = support::counter("sent_packets");
  }
  EXPECT_EQ(packets > 0, over_wire());
}

// Memory that the peer can map takes another way.
TEST_P(DataTest, SharedMemory) {
  set(Backing::kShared, (2 << 20) + 2 * kMargin);
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
    for (const uint64_t length : kSizes)
      for (size_t i = 0; i < 4 && length <= 2 << 20; ++i) {
        SCOPED_TRACE(testing::Message()
                     << "opcode " << opcode << ", " << length << " bytes, " << kPieceCounts[i]);
        move({opcode, false}, length, kPieceCounts[i], kPieceCounts[(i + 1) % 4]);
        if (HasFailure()) return;
      }
}

// Every length there is around a small message, at every alignment of its end.
TEST_P(DataTest, EveryShortLength) {
  set(Backing::kPrivate, 65536);
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
    for (uint64_t length = 0; length <= 130; ++length) {
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << length << " bytes");
      move({opcode, false}, length, 1, 2);
      if (HasFailure()) return;
    }
}

// A receive that is larger than its message keeps the rest of its memory.
TEST_P(DataTest, ReceiveLargerThanItsMessage) {
  set(Backing::kPrivate, 65536);
  for (const uint64_t length : {0, 1, 32, 33, 8192, 20000}) {
    SCOPED_TRACE(length);
    prepare(a(), local_, b(), remote_, length, 40);
    ASSERT_EQ(0, b().post_receive(1, {remote_.piece(kMargin, 10), remote_.piece(kMargin + 10, 30000)}));
    ASSERT_EQ(0, a().post_send(send_of(2, {local_.piece(kMargin, length)})));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
    const ibv_wc found = b().next(Queue::kReceive);
    EXPECT_EQ(length, found.byte_len);
    expect_moved(a(), local_, b(), remote_, length, 40);
  }
}

TEST_P(DataTest, GigabyteWrite) {
  const uint64_t length = 1 << 30;
  if (GetParam() == Where::kOneProcess) {
    set(Backing::kPrivate, 8192);  // once is enough: here only that the limit is where it is said to be
    ibv_port_attr port{};
    ASSERT_EQ(0, ibv_query_port(a().endpoint().context(), 1, &port));
    EXPECT_EQ(length, port.max_msg_sz);
    return;
  }
  set(Backing::kPrivate, length);
  // The same few pages again and again would do for the source; distinct ones catch a chunk gone astray.
  a().fill(local_, 9);
  ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local_.all()}, remote_)));
  ASSERT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS, Wait(60'000)));
  EXPECT_EQ(-1, b().mismatch(remote_, 0, length, 9));
}

// A list is posted in one call and done in its order: each READ sees what the WRITE before it wrote.
TEST_P(DataTest, PostListsAreOrdered) {
  set(Backing::kPrivate, 1 << 20);
  for (const uint64_t length : {64, 8192, 100'000}) {
    for (uint64_t round = 0; round < 5; ++round) {
      a().fill(local_, 0, length, 50 + round);
      a().fill(local_, length, length, 70 + round);
      SendOrder first = rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, length)}, remote_);
      SendOrder read = rdma(IBV_WR_RDMA_READ, 2, {local_.piece(2 * length, length)}, remote_);
      SendOrder second = rdma(IBV_WR_RDMA_WRITE, 3, {local_.piece(length, length)}, remote_);
      SendOrder again = rdma(IBV_WR_RDMA_READ, 4, {local_.piece(3 * length, length)}, remote_);
      second.flags |= IBV_SEND_FENCE;
      ASSERT_EQ(0, a().post_sends({first, read, second, again}).error);
      for (const uint64_t wr_id : {1, 2, 3, 4})
        ASSERT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
      EXPECT_EQ(-1, a().mismatch(local_, 2 * length, length, 50 + round));
      EXPECT_EQ(-1, a().mismatch(local_, 3 * length, length, 70 + round));
    }
  }
}

// A SEND behind a WRITE arrives behind it: programs tell by it that the bytes are there.
TEST_P(DataTest, SendFollowsWrite) {
  set(Backing::kPrivate, 1 << 20);
  for (uint64_t round = 0; round < 50; ++round) {
    const uint64_t length = round % 2 == 0 ? 64 : 600'000;
    a().fill(local_, 0, length, round);
    ASSERT_EQ(0, b().post_receive(1));
    SendOrder write = rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, length)}, remote_);
    write.flags = 0;
    ASSERT_EQ(0, a().post_sends({write, send_of(2, {})}).error);
    // The sender has to go on polling: it is what moves the bytes.
    ASSERT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(b(), Queue::kReceive, 1, IBV_WC_SUCCESS));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, length, round));
  }
}

// Two connections side by side, short and long requests on both: neither waits for the other's end.
TEST_P(DataTest, TwoQueuePairsInterleaved) {
  set(Backing::kPrivate, 2 * kLongest);
  Side c(here_);
  Side d(there());
  rc::connect(c, d);
  const Buffer from = c.add_buffer(64 << 10);
  const Buffer to = d.add_buffer(64 << 10);
  a().fill(local_, 3);
  bool overtaken = false;
  for (uint64_t attempt = 0; attempt < 10 && !overtaken; ++attempt) {
    ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local_.all()}, remote_)));
    Completions done;
    for (uint64_t i = 0; i < 50; ++i) {
      c.fill(from, i);
      const uint64_t length = i % 2 == 0 ? 64 : 20000;
      ASSERT_EQ(0, d.post_receive(i, {to.all()}));
      ASSERT_EQ(0, c.post_send(send_of(i, {from.piece(0, length)})));
      ASSERT_TRUE(next_is(c, Queue::kSend, i, IBV_WC_SUCCESS));
      ASSERT_TRUE(next_is(d, Queue::kReceive, i, IBV_WC_SUCCESS));
      ASSERT_EQ(-1, d.mismatch(to, 0, length, i));
      if (i == 0) done = a().poll(Queue::kSend, 1, kNow);
    }
    // On a loaded machine we may have been put aside while the helper thread did it all.
    overtaken = done.count == 0;
    if (overtaken) {
      ASSERT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    }
  }
  EXPECT_TRUE(overtaken) << "a long one always went before 64 bytes of somebody else";
  EXPECT_EQ(-1, b().mismatch(remote_, 0, 2 * kLongest, 3));
}

// Both directions of one connection at once.
TEST_P(DataTest, BothDirections) {
  set(Backing::kPrivate, 8 << 20);
  const Buffer in = a().add_buffer(8 << 20);
  const Buffer back = b().add_buffer(8 << 20);
  a().fill(local_, 1);
  b().fill(back, 2);
  for (const uint64_t length : {100, 8192, 8 << 20}) {
    ASSERT_EQ(0, a().post_receive(1, {in.all()}));
    ASSERT_EQ(0, b().post_receive(2, {remote_.all()}));
    ASSERT_EQ(0, a().post_send(send_of(3, {local_.piece(0, length)})));
    ASSERT_EQ(0, b().post_send(send_of(4, {back.piece(0, length)})));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(b(), Queue::kSend, 4, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(a(), Queue::kReceive, 1, IBV_WC_SUCCESS));
    ASSERT_TRUE(next_is(b(), Queue::kReceive, 2, IBV_WC_SUCCESS));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, length, 1));
    EXPECT_EQ(-1, a().mismatch(in, 0, length, 2));
  }
}

// As deep as the queues are.
TEST_P(DataTest, ManyMessagesWithoutPolling) {
  EndpointSpec spec;
  spec.caps.max_send_wr = spec.caps.max_recv_wr = 4096;
  spec.send_cqe = spec.recv_cqe = 4096;
  open_connected(spec, spec);
  const Buffer from = a().add_buffer(4096 * 64);
  const Buffer to = b().add_buffer(4096 * 64);
  a().fill(from, 8);
  for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(0, b().post_receive(i, {to.piece(i * 64, 64)}));
  for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(0, a().post_send(send_of(i, {from.piece(i * 64, 64)})));
  for (uint64_t i = 0; i < 4096; i += 64) {
    const Completions sent = a().poll(Queue::kSend, 64);
    const Completions received = b().poll(Queue::kReceive, 64);
    ASSERT_EQ(64, sent.count);
    ASSERT_EQ(64, received.count);
    for (uint64_t k = 0; k < 64; ++k) {
      ASSERT_EQ(i + k, sent.list.at(k).wr_id);
      ASSERT_EQ(i + k, received.list.at(k).wr_id);
      ASSERT_EQ(IBV_WC_SUCCESS, received.list.at(k).status);
    }
  }
  EXPECT_EQ(-1, b().mismatch(to, 0, 4096 * 64, 8));
}

}  // namespace
}  // namespace verbena::rc
