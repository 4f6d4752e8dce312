// One queue pair, many connections: to one peer after another, to itself; and what is left of the old ones.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

class Connections : public PairTest {
 protected:
  static void expect_exchange(Side& from, Side& to, uint64_t seed) {
    const Buffer out = from.add_buffer(20000);
    const Buffer in = to.add_buffer(20000);
    for (const uint64_t length : {40, 20000}) {
      from.fill(out, seed + length);
      ASSERT_EQ(0, to.post_receive(seed, {in.all()}));
      ASSERT_EQ(0, from.post_send(send_of(seed + 1, {out.piece(0, length)})));
      EXPECT_TRUE(next_is(from, Queue::kSend, seed + 1, IBV_WC_SUCCESS));
      EXPECT_TRUE(next_is(to, Queue::kReceive, seed, IBV_WC_SUCCESS));
      EXPECT_EQ(-1, to.mismatch(in, 0, length, seed + length));
    }
  }
};
RC_IN_BOTH(Connections);

TEST_P(Connections, ToOnePeerAfterAnother) {
  open_connected();
  expect_exchange(a(), b(), 10);
  expect_exchange(b(), a(), 20);
  Side c(there());
  Side d(GetParam() == Where::kOneProcess ? here_ : Host::helper());
  for (Side* next : {&c, &d}) {
    ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
    rc::connect(a(), *next);
    expect_exchange(a(), *next, 30);
    expect_exchange(*next, a(), 40);
  }
  EXPECT_TRUE(state_is(b(), IBV_QPS_RTS)) << "nobody told it";
}

// The left peer speaks to nobody: its messages don't reach the new connection.
TEST_P(Connections, OldPeerIsIgnored) {
  open();
  links_.b.timeout = 12;
  links_.b.retry_cnt = 1;
  connect();
  expect_exchange(b(), a(), 10);
  Side c(there());
  ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
  rc::connect(a(), c);
  const Buffer in = a().add_buffer(4096);
  a().fill(in, 1);
  for (const uint64_t wr_id : {1, 2, 3}) ASSERT_EQ(0, a().post_receive(wr_id, {in.piece(0, 64)}));
  const Buffer out = b().add_buffer(4096);
  ASSERT_EQ(0, b().post_send(send_of(9, {out.piece(0, 64)})));
  EXPECT_TRUE(next_is(b(), Queue::kSend, 9, IBV_WC_RETRY_EXC_ERR));
  EXPECT_TRUE(nothing_comes(a(), Queue::kReceive));
  EXPECT_EQ(-1, a().mismatch(in, 0, 4096, 1));
  ASSERT_EQ(0, c.post_send(send_of(8, {})));
  EXPECT_TRUE(next_is(c, Queue::kSend, 8, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 1, IBV_WC_SUCCESS));
}

// Even a message that was delivered before the reset, and not yet polled.
TEST_P(Connections, UnpolledMessagesOfAnOldConnectionAreGone) {
  open_connected();
  const Buffer out = b().add_buffer(20000);
  const Buffer in = a().add_buffer(20000);
  for (const uint64_t wr_id : {1, 2, 3}) ASSERT_EQ(0, a().post_receive(wr_id, {in.all()}));
  ASSERT_EQ(0, b().post_sends({send_of(4, {out.piece(0, 20)}), send_of(5, {out.piece(0, 2000)}),
                               send_of(6, {out.all()})})
                   .error);
  for (const uint64_t wr_id : {4, 5, 6}) EXPECT_TRUE(next_is(b(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
  for (Side* side : {&a(), &b()}) ASSERT_EQ(0, side->to_state(IBV_QPS_RESET));
  connect();
  ASSERT_EQ(0, a().post_receive(7, {in.all()}));
  EXPECT_TRUE(nothing_comes(a(), Queue::kReceive));
  ASSERT_EQ(0, b().post_send(send_of(8, {out.piece(0, 20)})));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 7, IBV_WC_SUCCESS));
}

// Only one side was reset and connected anew: its other end belongs to an earlier life.
TEST_P(Connections, HalfReconnectedIsSilent) {
  open();
  links_.a.timeout = links_.b.timeout = 12;
  links_.a.retry_cnt = links_.b.retry_cnt = 1;
  connect();
  expect_exchange(a(), b(), 10);
  ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
  ASSERT_EQ(0, a().to_init(links_.a));
  ASSERT_EQ(0, a().to_rtr(links_.a));
  ASSERT_EQ(0, a().to_rts(links_.a));
  ASSERT_EQ(0, a().post_receive(1));
  ASSERT_EQ(0, b().post_receive(2));
  ASSERT_EQ(0, a().post_send(send_of(3, {})));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_RETRY_EXC_ERR));
  EXPECT_TRUE(nothing_comes(b(), Queue::kReceive));
}

// A failure of the old connection, noticed late, doesn't fail the new one.
TEST_P(Connections, OldFailureDoesNotReachTheNextConnection) {
  open();
  links_.a.timeout = 14;
  links_.a.retry_cnt = 3;
  const Buffer local = a().add_buffer(64);
  for (int round = 0; round < 300; ++round) {
    connect();
    ASSERT_EQ(0, b().post_receive(1));
    ASSERT_EQ(0, a().post_send(send_of(2, {})));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS)) << "round " << round;
    ASSERT_TRUE(next_is(b(), Queue::kReceive, 1, IBV_WC_SUCCESS)) << "round " << round;
    ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 4, {local.all()}, Buffer{})));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 4, IBV_WC_REM_ACCESS_ERR)) << "round " << round;
    ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
    (void)b().next_event(kNow);
    ASSERT_EQ(0, b().to_state(IBV_QPS_RESET));
  }
  EXPECT_TRUE(state_is(a(), IBV_QPS_RESET));
  EXPECT_TRUE(state_is(b(), IBV_QPS_RESET));
}

// The same for the requester's own: the helper thread found it while the program slept.
TEST_P(Connections, OwnOldFailureDoesNotReachTheNextConnection) {
  open({.channel = true});
  for (int round = 0; round < 300; ++round) {
    links_.a.timeout = 6;  // 262 us
    links_.a.retry_cnt = 0;
    ASSERT_EQ(0, a().to_init(links_.a));
    ASSERT_EQ(0, a().to_rtr(links_.a));
    ASSERT_EQ(0, a().to_rts(links_.a));
    ASSERT_EQ(0, a().arm(Queue::kSend));
    ASSERT_EQ(0, a().post_send(send_of(1, {})));
    ASSERT_TRUE(a().next_channel_event().came);
    ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
    links_.a.timeout = 18;
    connect();
    ASSERT_EQ(0, b().post_receive(2));
    ASSERT_EQ(0, a().post_send(send_of(3, {})));
    ASSERT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_SUCCESS)) << "round " << round;
    ASSERT_TRUE(next_is(b(), Queue::kReceive, 2, IBV_WC_SUCCESS)) << "round " << round;
    ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
    ASSERT_EQ(0, b().to_state(IBV_QPS_RESET));
  }
}

TEST_P(Connections, ToItself) {
  Side self(here_);
  const Address own = self.address();
  const Link link{.peer = own.gid, .peer_qpn = own.qpn, .rq_psn = 5, .sq_psn = 5};
  ASSERT_EQ(0, self.to_init(link));
  ASSERT_EQ(0, self.to_rtr(link));
  ASSERT_EQ(0, self.to_rts(link));
  expect_exchange(self, self, 10);
  const Buffer buffer = self.add_buffer(4096);
  self.set_word(buffer, 8, 5);
  ASSERT_EQ(0, self.post_send(fetch_add(1, buffer.piece(0, 8), buffer, 8, 2)));
  EXPECT_TRUE(next_is(self, Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_EQ(5u, self.word(buffer, 0));
  EXPECT_EQ(7u, self.word(buffer, 8));
}

TEST_P(Connections, NewQueuePairsHaveOtherNumbers) {
  uint32_t last = 0;
  for (int i = 0; i < 20; ++i) {
    Side side(there());
    const uint32_t number = side.address().qpn;
    EXPECT_NE(last, number);
    EXPECT_EQ(0u, number >> 24);
    last = number;
  }
}

// ---- Taking apart. ----

TEST_P(Connections, DestroyWithOutstandingWork) {
  for (int round = 0; round < 20; ++round) {
    open_connected();
    const Buffer local = a().add_buffer(8 << 20);
    const Buffer remote = b().add_buffer(8 << 20);
    for (const uint64_t wr_id : {1, 2}) ASSERT_EQ(0, a().post_receive(wr_id, {local.all()}));
    if (round % 2 == 0) {
      ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 3, {local.all()}, remote)));
    }
    ASSERT_EQ(0, a().post_send(send_of(4, {})));  // waits for a receive
    ASSERT_EQ(0, a().destroy_qp());
    EXPECT_EQ(0, a().poll(Queue::kSend, 1, kNow).count);
    EXPECT_EQ(0, a().poll(Queue::kReceive, 1, kNow).count);
    a().close();
    EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
  }
}

// Destroyed the moment its failure is known, with everything it used.
TEST_P(Connections, DestroyRightAfterAFailure) {
  for (int round = 0; round < 200; ++round) {
    open_connected();
    const Buffer local = a().add_buffer(64);
    ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local.all()}, Buffer{})));
    ASSERT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
    b().close();  // fails the test if a part of it can't be destroyed
    if (HasFailure()) return;
  }
}

// The same at the requester, where the helper thread found the failure and may still be at it.
TEST_P(Connections, DestroyRightAfterOnesOwnFailure) {
  for (int round = 0; round < 200; ++round) {
    open({.channel = true});
    links_.a.timeout = 6;  // 262 us
    links_.a.retry_cnt = 0;
    connect();
    ASSERT_EQ(0, b().to_state(IBV_QPS_RESET));
    ASSERT_EQ(0, a().arm(Queue::kSend));
    ASSERT_EQ(0, a().post_send(send_of(1, {})));
    ASSERT_TRUE(a().next_channel_event().came);
    a().close();
    if (HasFailure()) return;
  }
}

// And with a thread that looks at all queue pairs of the process: once ibv_destroy_qp has returned, nothing
// keeps the queue pair's queues and domain busy.
TEST_P(Connections, DestroyWhileAnotherThreadDeregisters) {
  open();
  std::atomic<bool> stop = false;
  std::thread registers([&] {
    while (!stop) EXPECT_EQ(0, a().deregister(a().add_buffer(4096)));
  });
  for (int round = 0; round < 300 && !HasFailure(); ++round) Side(here_).close();
  stop = true;
  registers.join();
}

// Completions of a destroyed queue pair are taken out of a queue that others use, too.
TEST_P(Connections, SharedQueueKeepsOnlyTheOthers) {
  open_connected();
  ibv_qp_init_attr init{};
  init.send_cq = a().endpoint().cq(Queue::kSend);
  init.recv_cq = a().endpoint().cq(Queue::kReceive);
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* second = ibv_create_qp(a().endpoint().pd(), &init);
  ASSERT_NE(nullptr, second);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(0, ibv_modify_qp(second, &attr, IBV_QP_STATE));
  for (uint64_t i = 0; i < 3; ++i) {
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    send.wr_id = 100 + i;
    send.opcode = IBV_WR_SEND;
    ASSERT_EQ(0, ibv_post_send(second, &send, &bad_send));
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    receive.wr_id = 200 + i;
    ASSERT_EQ(0, ibv_post_recv(second, &receive, &bad_receive));
    ASSERT_EQ(0, b().post_receive(i));
    ASSERT_EQ(0, a().post_send(send_of(i, {})));
  }
  ASSERT_EQ(EBUSY, ibv_destroy_cq(init.send_cq));
  ASSERT_EQ(0, ibv_destroy_qp(second));
  for (const uint64_t wr_id : {0, 1, 2}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend, kNow));
  EXPECT_TRUE(nothing_comes(a(), Queue::kReceive, kNow));
}

// An asynchronous event that was taken holds its object until it is acknowledged.
TEST_P(Connections, DestroyWaitsForAsyncAcks) {
  open_connected();
  ASSERT_EQ(0, b().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {b().add_buffer(64).all()}, Buffer{})));
  ibv_async_event event{};
  ASSERT_EQ(0, ibv_get_async_event(a().endpoint().context(), &event));
  EXPECT_EQ(IBV_EVENT_QP_ACCESS_ERR, event.event_type);
  EXPECT_EQ(a().endpoint().qp(), event.element.qp);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(0, a().destroy_qp());
    destroyed = true;
  });
  ::usleep(60'000);
  EXPECT_FALSE(destroyed) << "the event wasn't acknowledged";
  ibv_ack_async_event(&event);
  destroyer.join();
}

// Events that nobody took go with their object.
TEST_P(Connections, UntakenAsyncEventsVanish) {
  open_connected();
  ASSERT_EQ(0, b().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {b().add_buffer(64).all()}, Buffer{})));
  ::usleep(50'000);
  ASSERT_EQ(0, a().destroy_qp());
  EXPECT_TRUE(no_event(a()));
}

// What is in use can't be destroyed.
TEST_P(Connections, BusyParts) {
  open({.channel = true});
  Endpoint& end = a().endpoint();
  EXPECT_EQ(EBUSY, ibv_destroy_cq(end.cq(Queue::kSend)));
  EXPECT_EQ(EBUSY, ibv_destroy_cq(end.cq(Queue::kReceive)));
  EXPECT_EQ(EBUSY, ibv_dealloc_pd(end.pd()));
  EXPECT_EQ(EBUSY, ibv_destroy_comp_channel(end.channel()));
}

// The target goes away under fire, again and again; the sender sees silence, never a crash.
TEST_P(Connections, DestroyUnderFire) {
  for (int round = 0; round < 20; ++round) {
    open();
    links_.a.timeout = 8;
    links_.a.retry_cnt = 0;
    connect();
    const Buffer local = a().add_buffer(20000);
    const Buffer remote = b().add_buffer(20000);
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(0, b().post_receive(i, {remote.all()}));
    std::atomic<bool> failed = false;
    std::thread sender([&] {
      const SendOrder orders[] = {send_of(1, {local.piece(0, 40)}), send_of(1, {local.all()}),
                                  rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(0, 64)}, remote)};
      for (int i = 0; !failed; ++i) {
        EXPECT_EQ(0, a().post_send(orders[i % 3]));
        const ibv_wc found = a().next(Queue::kSend);
        failed = found.status != IBV_WC_SUCCESS;
        EXPECT_TRUE(found.status == IBV_WC_SUCCESS || found.status == IBV_WC_RETRY_EXC_ERR ||
                    found.status == IBV_WC_REM_ACCESS_ERR)
            << ibv_wc_status_str(found.status);
        for (int n = 0; n < 2 && !failed && GetParam() == Where::kTwoProcesses; ++n)
          if (b().poll(Queue::kReceive, 1, kNow).count == 1) b().post_receive(9, {remote.all()});
      }
    });
    ::usleep(static_cast<useconds_t>(round * 50));
    const bool here = GetParam() == Where::kOneProcess;
    EXPECT_EQ(0, here ? b().destroy_qp() : b().to_state(IBV_QPS_RESET));
    sender.join();
  }
}

}  // namespace
}  // namespace verbena::rc
