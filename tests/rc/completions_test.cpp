// Completion queues: sizes, polling, order, signals, overflow.
#include <sched.h>

#include <atomic>
#include <thread>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

class QueueSizes : public testing::Test {
 protected:
  ~QueueSizes() override { EXPECT_EQ(0, ibv_close_device(context_)); }
  ibv_context* context_ = open_device();
};

TEST_F(QueueSizes, AnySizeUpToTheLimit) {
  ibv_device_attr device{};
  ASSERT_EQ(0, ibv_query_device(context_, &device));
  for (const int asked : {1, 2, 3, 15, 16, 17, 100, 4096, 65537, device.max_cqe}) {
    ibv_cq* cq = ibv_create_cq(context_, asked, this, nullptr, 0);
    ASSERT_NE(nullptr, cq) << asked;
    EXPECT_GE(cq->cqe, asked);
    EXPECT_EQ(this, cq->cq_context);
    ibv_wc found{};
    EXPECT_EQ(0, ibv_poll_cq(cq, 1, &found));
    EXPECT_EQ(0, ibv_poll_cq(cq, 0, &found));
    EXPECT_EQ(0, ibv_destroy_cq(cq));
  }
  for (const int asked : {0, -1, device.max_cqe + 1}) {
    EXPECT_EQ(nullptr, ibv_create_cq(context_, asked, nullptr, nullptr, 0)) << asked;
    EXPECT_EQ(EINVAL, errno);
  }
  for (const int vector : {-1, context_->num_comp_vectors}) {
    EXPECT_EQ(nullptr, ibv_create_cq(context_, 16, nullptr, nullptr, vector)) << vector;
    EXPECT_EQ(EINVAL, errno);
  }
}

TEST_F(QueueSizes, Resize) {
  ibv_device_attr device{};
  ASSERT_EQ(0, ibv_query_device(context_, &device));
  ibv_cq* cq = ibv_create_cq(context_, 10, nullptr, nullptr, 0);
  ASSERT_NE(nullptr, cq);
  for (const int asked : {1000, 1, 50000, device.max_cqe, 7}) {
    EXPECT_EQ(0, ibv_resize_cq(cq, asked));
    EXPECT_GE(cq->cqe, asked);
  }
  const int before = cq->cqe;
  for (const int asked : {0, -5, device.max_cqe + 1}) EXPECT_EQ(EINVAL, ibv_resize_cq(cq, asked)) << asked;
  EXPECT_EQ(before, cq->cqe);
  EXPECT_EQ(0, ibv_destroy_cq(cq));
}

class CompletionsTest : public PairTest {};
RC_IN_BOTH(CompletionsTest);

// A smaller queue must hold what waits in it, wherever it waits.
TEST_P(CompletionsTest, ResizeWithWaitingCompletions) {
  open_connected();
  ibv_cq* sends = a().endpoint().cq(Queue::kSend);
  ibv_cq* receives = a().endpoint().cq(Queue::kReceive);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(0, a().post_receive(i));
    ASSERT_EQ(0, b().post_receive(i));
    ASSERT_EQ(0, a().post_send(send_of(i, {})));
    ASSERT_EQ(0, b().post_send(send_of(i, {})));
  }
  ASSERT_EQ(50, b().poll(Queue::kSend, 50).count);
  if (over_wire()) std::this_thread::sleep_for(Wait(300));  // our own come a little later, without a poll
  for (ibv_cq* cq : {sends, receives}) {
    EXPECT_EQ(EINVAL, ibv_resize_cq(cq, 49));
    EXPECT_GE(cq->cqe, 256);
    EXPECT_EQ(0, ibv_resize_cq(cq, 50));
    EXPECT_GE(cq->cqe, 50);
    EXPECT_EQ(0, ibv_resize_cq(cq, 5000));
  }
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(next_is(a(), Queue::kSend, i, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(a(), Queue::kReceive, i, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(0, ibv_resize_cq(sends, 1));
}

TEST_P(CompletionsTest, BatchesKeepTheOrder) {
  open_connected();
  for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(0, b().post_receive(100 + i));
  for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(0, a().post_send(send_of(i, {})));
  uint64_t next_send = 0;
  uint64_t next_receive = 100;
  for (const int batch : {1, 2, 3, 7, 20, 31}) {
    const Completions sent = a().poll(Queue::kSend, batch);
    const Completions received = b().poll(Queue::kReceive, batch);
    ASSERT_EQ(batch, sent.count);
    ASSERT_EQ(batch, received.count);
    for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
      EXPECT_EQ(next_send++, sent.list.at(i).wr_id);
      EXPECT_EQ(next_receive++, received.list.at(i).wr_id);
    }
  }
  EXPECT_EQ(64u, next_send);
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend, kNow));
}

// What a completion says, for each operation and on both sides.
TEST_P(CompletionsTest, FieldsOfACompletion) {
  open_connected();
  const Buffer local = a().add_buffer(65536);
  const Buffer remote = b().add_buffer(65536);
  struct Expected {
    ibv_wr_opcode opcode;
    ibv_wc_opcode sent;
    bool receives;
    ibv_wc_opcode received;
    bool immediate;
  };
  const Expected all[] = {
      {IBV_WR_SEND, IBV_WC_SEND, true, IBV_WC_RECV, false},
      {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, true, IBV_WC_RECV, true},
      {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, false, IBV_WC_RECV, false},
      {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, true, IBV_WC_RECV_RDMA_WITH_IMM, true},
      {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, false, IBV_WC_RECV, false},
      {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, false, IBV_WC_RECV, false},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, false, IBV_WC_RECV, false}};
  uint64_t wr_id = 0xfedcba9876543210;
  for (const auto& expected : all)
    for (const uint64_t length : {8, 20000}) {
      const bool atomic = expected.sent == IBV_WC_COMP_SWAP || expected.sent == IBV_WC_FETCH_ADD;
      if (atomic && length != 8) continue;
      SCOPED_TRACE(testing::Message() << "opcode " << expected.opcode << ", " << length << " bytes");
      if (expected.receives) {
        ASSERT_EQ(0, b().post_receive(++wr_id, {remote.all()}));
      }
      SendOrder order = rdma(expected.opcode, wr_id + 1000, {local.piece(0, length)}, remote);
      order.imm = 0x01020304;
      ASSERT_EQ(0, a().post_send(order));
      const ibv_wc sent = a().next(Queue::kSend);
      EXPECT_EQ(IBV_WC_SUCCESS, sent.status);
      EXPECT_EQ(wr_id + 1000, sent.wr_id);
      EXPECT_EQ(expected.sent, sent.opcode);
      EXPECT_EQ(a().address().qpn, sent.qp_num);
      if (atomic || expected.opcode == IBV_WR_RDMA_READ) {
        EXPECT_EQ(length, sent.byte_len);
      }
      if (!expected.receives) {
        EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, kNow))
            << "READ and WRITE leave nothing at the target";
        continue;
      }
      const ibv_wc received = b().next(Queue::kReceive);
      EXPECT_EQ(IBV_WC_SUCCESS, received.status);
      EXPECT_EQ(wr_id, received.wr_id);
      EXPECT_EQ(expected.received, received.opcode);
      EXPECT_EQ(b().address().qpn, received.qp_num);
      EXPECT_EQ(length, received.byte_len);
      EXPECT_EQ(expected.immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0u, received.wc_flags);
      if (expected.immediate) {
        EXPECT_EQ(0x01020304u, received.imm_data);
      }
    }
}

TEST_P(CompletionsTest, UnsignalledSendsCompleteSilently) {
  open_connected();
  const Buffer local = a().add_buffer(65536);
  const Buffer remote = b().add_buffer(65536);
  for (uint64_t i = 0; i < 40; ++i) {
    SendOrder order = rdma(IBV_WR_RDMA_WRITE, i, {local.piece(0, i % 3 == 0 ? 20000 : 100)}, remote);
    order.flags = i % 10 == 9 ? IBV_SEND_SIGNALED : 0;
    ASSERT_EQ(0, a().post_send(order));
  }
  for (const uint64_t wr_id : {9, 19, 29, 39}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
  // Their places in the queue are free again, many times over.
  for (int round = 0; round < 300; ++round) {
    SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(0, 100)}, remote);
    order.flags = round % 32 == 31 ? IBV_SEND_SIGNALED : 0;
    ASSERT_EQ(0, a().post_send(order)) << round;
    if (order.flags != 0) {
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    }
  }
}

TEST_P(CompletionsTest, SignalAll) {
  open({.signal_all = true});
  connect();
  SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {}, Buffer{});
  order.flags = 0;
  ASSERT_EQ(0, a().post_sends({order, order}).error);
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
}

// Threads that share a queue pair: each request completes once, each thread's in its order.
TEST_P(CompletionsTest, ManyThreadsOneQueuePair) {
  EndpointSpec spec;
  spec.caps.max_send_wr = spec.caps.max_recv_wr = 1024;
  spec.send_cqe = spec.recv_cqe = 2048;
  open_connected(spec, spec);
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 200;
  const Buffer local = a().add_buffer(65536);
  const Buffer remote = b().add_buffer(65536);
  for (uint64_t i = 0; i < kThreads * kEach; ++i) ASSERT_EQ(0, b().post_receive(i, {remote.all()}));
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < kEach; ++i) {
        SendOrder order = send_of(thread * kEach + i, {local.piece(0, i % 50 == 0 ? 20000 : i)});
        order.opcode = IBV_WR_SEND_WITH_IMM;
        order.imm = static_cast<uint32_t>(order.wr_id);
        EXPECT_EQ(0, a().post_send(order));
      }
    });
  std::vector<uint64_t> next(kThreads);
  for (uint64_t i = 0; i < kThreads * kEach; ++i) {
    const ibv_wc found = a().next(Queue::kSend);
    ASSERT_EQ(IBV_WC_SUCCESS, found.status);
    const uint64_t thread = found.wr_id / kEach;
    EXPECT_EQ(next.at(thread)++, found.wr_id % kEach);
  }
  for (auto& thread : threads) thread.join();
  std::vector<uint64_t> arrived(kThreads);
  for (uint64_t i = 0; i < kThreads * kEach; ++i) {
    const ibv_wc found = b().next(Queue::kReceive);
    ASSERT_EQ(IBV_WC_SUCCESS, found.status);
    EXPECT_EQ(i, found.wr_id);
    EXPECT_EQ(arrived.at(found.imm_data / kEach)++, found.imm_data % kEach);
  }
}

// Threads that poll one queue share out what is in it.
TEST_P(CompletionsTest, ManyThreadsPollOneQueue) {
  open_connected();
  std::atomic<int> found = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&] {
      while (found < 2000) found += a().poll(Queue::kSend, 4, kNow).count;
    });
  const SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {}, Buffer{});
  for (int i = 0; i < 2000; ++i) {
    while (i - found > 50) ::sched_yield();
    ASSERT_EQ(0, a().post_send(order));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(2000, found);
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend, kNow));
}

// A place in the send queue is free again once its completion was polled, not before (ibv_create_qp:
// max_send_wr is the number of outstanding requests). So who posts until ENOMEM never overflows a completion
// queue that is deep enough.
TEST_P(CompletionsTest, PostingUntilFullOverflowsNothing) {
  open({.send_cqe = 64});
  connect();
  const SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {}, Buffer{});
  for (int round = 0; round < 3; ++round) {
    int posted = 0;
    while (posted < 1000 && a().post_send(order) == 0) ++posted;
    EXPECT_EQ(64, posted);
    EXPECT_EQ(64, a().poll(Queue::kSend, 64).count);
  }
  ASSERT_EQ(0, a().to_state(IBV_QPS_ERR));
  int posted = 0;
  while (posted < 1000 && a().post_send(order) == 0) ++posted;
  EXPECT_EQ(64, posted) << "flushed at once, but not polled";
  int received = 0;
  while (received < 1000 && a().post_receive(7) == 0) ++received;
  EXPECT_EQ(64, received);
  EXPECT_TRUE(no_event(a(), kNow));
}

// ---- Overflow (DESIGN 2.8) ----

testing::AssertionResult goes_to(Side& side, ibv_qp_state state) {
  const auto deadline = std::chrono::steady_clock::now() + kSoon;
  while (side.state() != state && std::chrono::steady_clock::now() < deadline) ::sched_yield();
  return state_is(side, state);
}

TEST_P(CompletionsTest, OverflowBySends) {
  open({.send_cqe = 4});
  links_.b.timeout = 12;
  links_.b.retry_cnt = 1;
  connect();
  ASSERT_EQ(0, a().post_receive(77));
  const int room = a().endpoint().cq(Queue::kSend)->cqe;
  const SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {}, Buffer{});
  for (int i = 0; i < room; ++i) ASSERT_EQ(0, a().post_send(order));
  EXPECT_TRUE(no_event(a())) << "full isn't too full";
  EXPECT_TRUE(state_is(a(), IBV_QPS_RTS));
  ASSERT_EQ(0, a().post_send(order));
  EXPECT_TRUE(event_is(a(), IBV_EVENT_CQ_ERR));
  EXPECT_TRUE(goes_to(a(), IBV_QPS_ERR));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 77, IBV_WC_WR_FLUSH_ERR)) << "the other queue is in order";
  // Its peer meets silence.
  EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
  ASSERT_EQ(0, b().post_send(send_of(5, {})));
  EXPECT_TRUE(next_is(b(), Queue::kSend, 5, IBV_WC_RETRY_EXC_ERR));
}

TEST_P(CompletionsTest, OverflowByAPeersSends) {
  EndpointSpec small;
  small.recv_cqe = 4;
  small.caps.max_recv_wr = 256;
  open({}, small);
  links_.a.timeout = 12;
  links_.a.retry_cnt = 1;
  connect();
  for (uint64_t i = 0; i < 256; ++i) ASSERT_EQ(0, b().post_receive(i));
  ibv_wc last{};
  int sent = 0;
  for (; sent < 250 && last.status == IBV_WC_SUCCESS; ++sent) {
    ASSERT_EQ(0, a().post_send(send_of(static_cast<uint64_t>(sent), {})));
    last = a().next(Queue::kSend);
  }
  EXPECT_GT(sent, 4);
  EXPECT_EQ(IBV_WC_RETRY_EXC_ERR, last.status) << "after " << sent;
  EXPECT_TRUE(event_is(b(), IBV_EVENT_CQ_ERR));
  EXPECT_TRUE(goes_to(b(), IBV_QPS_ERR));
  EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
  EXPECT_TRUE(no_event(b())) << "one event tells it";
}

// A queue that is polled in time never overflows, however much passes through it.
TEST_P(CompletionsTest, SmallQueueLargeStream) {
  EndpointSpec small;
  small.send_cqe = small.recv_cqe = 4;
  small.caps.max_recv_wr = 4;
  open_connected(small, small);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(0, b().post_receive(i));
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(0, a().post_send(send_of(i, {})));
    EXPECT_TRUE(next_is(a(), Queue::kSend, i, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, i, IBV_WC_SUCCESS));
    ASSERT_EQ(0, b().post_receive(i + 4));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace verbena::rc
