// Completion channels: events for any or for solicited completions, re-arming, acknowledging, not blocking.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

using Clock = std::chrono::steady_clock;

class ChannelTest : public PairTest {
 protected:
  void set() {
    open({.channel = true}, {.channel = true});
    connect();
  }
  // From b to a, arrived.
  void send_to_a(unsigned flags = IBV_SEND_SIGNALED, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ASSERT_EQ(0, a().post_receive(1));
    SendOrder order = rdma(opcode, 2, {}, Buffer{});
    order.flags = flags | IBV_SEND_SIGNALED;
    ASSERT_EQ(0, b().post_send(order));
    EXPECT_TRUE(next_is(b(), Queue::kSend, 2, IBV_WC_SUCCESS));
  }
  testing::AssertionResult event_for(Side& side, Queue queue) {
    const ChannelEvent event = side.next_channel_event();
    if (!event.came) return testing::AssertionFailure() << "no event came, errno " << event.error;
    if (event.queue != queue) return testing::AssertionFailure() << "the event is for the other queue";
    return testing::AssertionSuccess();
  }
};
RC_IN_BOTH(ChannelTest);

TEST_P(ChannelTest, AnyCompletionOnce) {
  set();
  send_to_a();
  EXPECT_FALSE(a().next_channel_event(kMoment).came) << "nobody asked";
  ASSERT_EQ(0, a().arm(Queue::kReceive));
  EXPECT_FALSE(a().next_channel_event(kMoment).came) << "it was there before: polling finds it";
  send_to_a();
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
  send_to_a();
  EXPECT_FALSE(a().next_channel_event(kMoment).came) << "armed once, told once";
  EXPECT_EQ(3, a().poll(Queue::kReceive, 3).count);
}

TEST_P(ChannelTest, SolicitedOnly) {
  set();
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    SCOPED_TRACE(opcode);
    ASSERT_EQ(0, a().arm(Queue::kReceive, true));
    send_to_a(0, opcode);
    EXPECT_FALSE(a().next_channel_event(kMoment).came) << "it wasn't solicited";
    send_to_a(IBV_SEND_SOLICITED, opcode);
    EXPECT_TRUE(event_for(a(), Queue::kReceive));
  }
}

TEST_P(ChannelTest, SolicitedForLongMessages) {
  set();
  const Buffer local = b().add_buffer(20000);
  const Buffer remote = a().add_buffer(20000);
  ASSERT_EQ(0, a().arm(Queue::kReceive, true));
  for (const unsigned flags : {0u, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
    ASSERT_EQ(0, a().post_receive(1, {remote.all()}));
    SendOrder order = send_of(2, {local.all()});
    order.flags |= flags;
    ASSERT_EQ(0, b().post_send(order));
    EXPECT_TRUE(next_is(b(), Queue::kSend, 2, IBV_WC_SUCCESS));
    EXPECT_EQ(flags != 0, a().next_channel_event(flags != 0 ? kSoon : kMoment).came);
  }
}

// An error is always worth an event.
TEST_P(ChannelTest, ErrorsCountAsSolicited) {
  set();
  ASSERT_EQ(0, a().post_receive(1));
  ASSERT_EQ(0, a().arm(Queue::kReceive, true));
  ASSERT_EQ(0, a().arm(Queue::kSend, true));
  ASSERT_EQ(0, a().to_state(IBV_QPS_ERR));
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
  ASSERT_EQ(0, a().post_send(send_of(1, {})));
  EXPECT_TRUE(event_for(a(), Queue::kSend));
}

// A peer's fault wakes who sleeps for solicited completions.
TEST_P(ChannelTest, PeersFaultWakesTheReceiver) {
  set();
  const Buffer from = b().add_buffer(64);
  ASSERT_EQ(0, a().post_receive(1));  // no room for a byte
  ASSERT_EQ(0, a().arm(Queue::kReceive, true));
  ASSERT_EQ(0, b().post_send(send_of(2, {from.all()})));
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 1, IBV_WC_LOC_LEN_ERR));
}

TEST_P(ChannelTest, AskingForAnyIsNotTakenBack) {
  set();
  ASSERT_EQ(0, a().arm(Queue::kReceive, false));
  ASSERT_EQ(0, a().arm(Queue::kReceive, true));
  send_to_a();
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
  ASSERT_EQ(0, a().arm(Queue::kReceive, true));
  ASSERT_EQ(0, a().arm(Queue::kReceive, false));
  send_to_a();
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
}

TEST_P(ChannelTest, OneChannelTellsQueuesApart) {
  set();
  ASSERT_EQ(0, a().arm(Queue::kSend));
  ASSERT_EQ(0, a().arm(Queue::kReceive));
  ASSERT_EQ(0, b().post_receive(1));
  ASSERT_EQ(0, a().post_send(send_of(2, {})));
  EXPECT_TRUE(event_for(a(), Queue::kSend));
  send_to_a();
  EXPECT_TRUE(event_for(a(), Queue::kReceive));
}

// Nobody polls while a long request is under way: it goes on, ends, and wakes the program.
TEST_P(ChannelTest, LongRequestsGoOnWhileTheProgramSleeps) {
  set();
  const uint64_t length = 64 << 20;
  const Buffer local = a().add_buffer(length);
  const Buffer remote = b().add_buffer(length);
  a().fill(local, 6);
  ASSERT_EQ(0, a().arm(Queue::kSend));
  ASSERT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local.all()}, remote)));
  EXPECT_TRUE(event_for(a(), Queue::kSend));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b().mismatch(remote, 0, length, 6));
}

// Neither side polls, and more is under way than fits between them: a full ring is no silence. It empties by
// itself, and the sender must not sleep out its timeout each time.
TEST_P(ChannelTest, FullRingsEmptyWhileBothSleep) {
  EndpointSpec spec;
  spec.channel = true;
  spec.recv_cqe = 20;
  open(spec, spec);
  links_.a.timeout = 21;  // 8.6 s
  connect();
  const Buffer local = a().add_buffer(8192);
  const Buffer remote = b().add_buffer(8192);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(0, b().post_receive(i, {remote.all()}));
  ASSERT_EQ(0, a().arm(Queue::kSend));
  SendOrder quiet = send_of(1, {local.all()});
  quiet.flags = 0;
  const auto begin = Clock::now();
  ASSERT_EQ(
      0, a().post_sends({quiet, quiet, quiet, quiet, quiet, quiet, quiet, send_of(8, {local.all()})}).error);
  EXPECT_TRUE(event_for(a(), Queue::kSend));
  EXPECT_LT(Clock::now() - begin, Wait(4000));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 8, IBV_WC_SUCCESS));
  EXPECT_EQ(8, b().poll(Queue::kReceive, 8).count);
}

// The same for atomics that the sleeping owner has to run.
TEST_P(ChannelTest, AtomicsRunWhileBothSleep) {
  set();
  const Buffer local = a().add_buffer(8);
  const Buffer remote = b().add_buffer(8);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(0, a().arm(Queue::kSend));
    ASSERT_EQ(0, a().post_send(fetch_add(i, local.all(), remote, 0, 1)));
    ASSERT_TRUE(event_for(a(), Queue::kSend));
    EXPECT_TRUE(next_is(a(), Queue::kSend, i, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(20u, b().word(remote));
}

// Poll, wait, re-arm, poll: the loop of every program that sleeps. A completion that comes between the last
// poll and the arming must be found by the poll after it, else both sides wait for ever.
TEST_P(ChannelTest, RearmRace) {
  set();
  constexpr uint64_t kMessages = 20'000;
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(0, a().post_receive(i));
  std::atomic<bool> failed = false;
  std::thread sender([&] {
    if (b().blast(kMessages) != kMessages) failed = true;
  });
  uint64_t received = 0;
  const auto take = [&] {
    for (;;) {
      const Completions found = a().poll(Queue::kReceive, 8, kNow);
      for (size_t i = 0; i < static_cast<size_t>(found.count); ++i) {
        EXPECT_EQ(IBV_WC_SUCCESS, found.list.at(i).status);
        EXPECT_EQ(received % 32, found.list.at(i).wr_id);
        EXPECT_EQ(0, a().post_receive(received++ % 32));
      }
      if (found.count == 0) return;
    }
  };
  while (received < kMessages && !failed) {
    EXPECT_EQ(0, a().arm(Queue::kReceive));
    take();
    if (received < kMessages && !a().next_channel_event(Wait(5000)).came) {
      ADD_FAILURE() << "asleep after " << received << " of " << kMessages << " messages";
      failed = true;
    }
    take();
  }
  sender.join();
  EXPECT_EQ(kMessages, received);
}

TEST_P(ChannelTest, BatchedAcks) {
  set();
  Endpoint& end = a().endpoint();
  for (unsigned i = 0; i < 10; ++i) {
    ASSERT_EQ(0, a().arm(Queue::kReceive));
    send_to_a();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(0, ibv_get_cq_event(end.channel(), &cq, &context));
    EXPECT_EQ(end.cq(Queue::kReceive), cq);
    EXPECT_EQ(&end, context);
  }
  ibv_ack_cq_events(end.cq(Queue::kReceive), 4);
  ibv_ack_cq_events(end.cq(Queue::kReceive), 6);
  a().close();  // waits for no more
}

TEST_P(ChannelTest, DestroyWaitsForAcks) {
  set();
  Endpoint& end = a().endpoint();
  ASSERT_EQ(0, a().arm(Queue::kReceive));
  send_to_a();
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(0, ibv_get_cq_event(end.channel(), &cq, &context));
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    a().close();
    closed = true;
  });
  ::usleep(60'000);
  EXPECT_FALSE(closed) << "an event was handed out and not acknowledged";
  ibv_ack_cq_events(cq, 1);
  closer.join();
}

// An event that nobody has taken keeps nobody waiting, and is never handed out for a queue that is gone.
TEST_P(ChannelTest, UntakenEventsVanishWithTheirQueue) {
  set();
  ibv_comp_channel* channel = ibv_create_comp_channel(a().endpoint().context());
  ASSERT_NE(nullptr, channel);
  ASSERT_EQ(0, ::fcntl(channel->fd, F_SETFL, O_NONBLOCK));
  ibv_cq* cq = ibv_create_cq(a().endpoint().context(), 10, nullptr, channel, 0);
  ASSERT_NE(nullptr, cq);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(a().endpoint().pd(), &init);
  ASSERT_NE(nullptr, qp);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(0, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  ASSERT_EQ(0, ibv_req_notify_cq(cq, 0));
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(0, ibv_post_recv(qp, &receive, &bad));  // flushed: the event is there
  pollfd ready{channel->fd, POLLIN, 0};
  EXPECT_EQ(1, ::poll(&ready, 1, 0));
  ASSERT_EQ(0, ibv_destroy_qp(qp));
  ASSERT_EQ(0, ibv_destroy_cq(cq));
  void* context = nullptr;
  EXPECT_EQ(-1, ibv_get_cq_event(channel, &cq, &context));
  EXPECT_EQ(EAGAIN, errno);
  EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
}

TEST_P(ChannelTest, NonBlocking) {
  set();
  Endpoint& end = a().endpoint();
  ASSERT_EQ(0, ::fcntl(end.channel()->fd, F_SETFL, ::fcntl(end.channel()->fd, F_GETFL) | O_NONBLOCK));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  EXPECT_EQ(-1, ibv_get_cq_event(end.channel(), &cq, &context));
  EXPECT_EQ(EAGAIN, errno);
  ASSERT_EQ(0, a().arm(Queue::kReceive));
  pollfd ready{end.channel()->fd, POLLIN, 0};
  EXPECT_EQ(0, ::poll(&ready, 1, 0));
  send_to_a();
  EXPECT_EQ(1, ::poll(&ready, 1, 5000));
  EXPECT_EQ(0, ibv_get_cq_event(end.channel(), &cq, &context));
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(-1, ibv_get_cq_event(end.channel(), &cq, &context));
  EXPECT_EQ(EAGAIN, errno);
}

// The event thread of a program that blocks without a timeout.
TEST_P(ChannelTest, BlockingWaitIsWoken) {
  set();
  Endpoint& end = a().endpoint();
  ASSERT_EQ(0, a().arm(Queue::kReceive));
  std::thread waiter([&] {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    EXPECT_EQ(0, ibv_get_cq_event(end.channel(), &cq, &context));
    ibv_ack_cq_events(cq, 1);
  });
  ::usleep(20'000);
  send_to_a();
  waiter.join();
}

}  // namespace
}  // namespace verbena::rc
