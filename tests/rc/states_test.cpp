// The states of a queue pair through ibv_modify_qp and ibv_query_qp, and what may be posted in each.
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

const ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

class States : public PairTest {
 protected:
  // From RESET.
  static void bring(Side& side, const Link& link, ibv_qp_state state) {
    if (state == IBV_QPS_RESET) return;
    if (state == IBV_QPS_ERR) {
      ASSERT_EQ(0, side.to_state(IBV_QPS_ERR));
      return;
    }
    ASSERT_EQ(0, side.to_init(link));
    if (state == IBV_QPS_INIT) return;
    ASSERT_EQ(0, side.to_rtr(link));
    if (state == IBV_QPS_RTR) return;
    ASSERT_EQ(0, side.to_rts(link));
    if (state == IBV_QPS_RTS) return;
    ASSERT_EQ(0, side.to_state(IBV_QPS_SQD));
  }
  // With everything that the change needs.
  static int move(Side& side, const Link& link, ibv_qp_state from, ibv_qp_state to) {
    if (to == IBV_QPS_INIT) return side.to_init(link);
    if (to == IBV_QPS_RTR) return side.to_rtr(link);
    if (to == IBV_QPS_RTS && from != IBV_QPS_SQD) return side.to_rts(link);
    return side.to_state(to);
  }
  static bool allowed(ibv_qp_state from, ibv_qp_state to) {
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
    switch (from) {
      case IBV_QPS_RESET:
        return to == IBV_QPS_INIT;
      case IBV_QPS_INIT:
        return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
      case IBV_QPS_RTR:
        return to == IBV_QPS_RTS;
      case IBV_QPS_RTS:
        return to == IBV_QPS_SQD;  // RTS to RTS takes other attributes than those of RTR to RTS
      case IBV_QPS_SQD:
        return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
      default:
        return false;
    }
  }
};
RC_IN_BOTH(States);

TEST_P(States, EveryChange) {
  for (const auto from : kStates)
    for (const auto to : kStates) {
      SCOPED_TRACE(testing::Message() << from << " to " << to);
      open();
      bring(a(), links_.a, from);
      EXPECT_TRUE(state_is(a(), from));
      EXPECT_EQ(allowed(from, to) ? 0 : EINVAL, move(a(), links_.a, from, to));
      EXPECT_TRUE(state_is(a(), allowed(from, to) ? to : from));
      if (HasFailure()) return;
    }
}

TEST_P(States, QueryTellsWhatWasSet) {
  open();
  links_.a.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  links_.a.timeout = 19;
  links_.a.retry_cnt = 5;
  links_.a.rnr_retry = 6;
  links_.a.min_rnr_timer = 13;
  links_.a.max_rd_atomic = 3;
  links_.a.max_dest_rd_atomic = 4;
  connect();
  const ibv_qp_attr attr = a().query();
  EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
  EXPECT_EQ(links_.a.access, attr.qp_access_flags);
  EXPECT_EQ(links_.a.peer_qpn, attr.dest_qp_num);
  EXPECT_EQ(links_.a.rq_psn, attr.rq_psn);
  EXPECT_EQ(links_.a.sq_psn, attr.sq_psn);
  EXPECT_EQ(19, attr.timeout);
  EXPECT_EQ(5, attr.retry_cnt);
  EXPECT_EQ(6, attr.rnr_retry);
  EXPECT_EQ(13, attr.min_rnr_timer);
  EXPECT_EQ(3, attr.max_rd_atomic);
  EXPECT_EQ(4, attr.max_dest_rd_atomic);
  EXPECT_EQ(1, attr.port_num);
  EXPECT_EQ(IBV_MTU_1024, attr.path_mtu);
  EXPECT_EQ(1, attr.ah_attr.is_global);
  EXPECT_EQ(0, std::memcmp(attr.ah_attr.grh.dgid.raw, links_.a.peer.raw, 16));
  const ibv_qp_cap caps = a().caps();
  EXPECT_EQ(0, std::memcmp(&caps, &attr.cap, sizeof caps));
}

TEST_P(States, CapsAreNeverLessThanAskedFor) {
  const ibv_qp_cap asked[] = {{0, 0, 0, 0, 0},     {1, 1, 1, 1, 1},       {3, 5, 2, 7, 33},
                              {100, 1, 32, 1, 64}, {16384, 10, 1, 32, 0}, {1, 16384, 3, 1, 2048}};
  for (const auto& caps : asked) {
    EndpointSpec spec;
    spec.caps = caps;
    Side side(there(), spec);
    const ibv_qp_cap got = side.caps();
    EXPECT_GE(got.max_send_wr, caps.max_send_wr);
    EXPECT_GE(got.max_recv_wr, caps.max_recv_wr);
    EXPECT_GE(got.max_send_sge, caps.max_send_sge);
    EXPECT_GE(got.max_recv_sge, caps.max_recv_sge);
    EXPECT_GE(got.max_inline_data, caps.max_inline_data);
  }
}

// What is promised by the caps can be used: a full queue refuses with ENOMEM, not earlier.
TEST_P(States, FullQueuesRefuse) {
  EndpointSpec spec;
  spec.caps.max_send_wr = 5;
  spec.caps.max_recv_wr = 7;
  open(spec, spec);
  connect();
  for (uint64_t i = 0; i < a().caps().max_recv_wr; ++i) ASSERT_EQ(0, a().post_receive(i)) << i;
  EXPECT_EQ(ENOMEM, a().post_receive(99));
  // Without receives there they stay in the queue.
  for (uint64_t i = 0; i < a().caps().max_send_wr; ++i) ASSERT_EQ(0, a().post_send(send_of(i, {}))) << i;
  const Posted posted = a().post_sends({send_of(98, {}), send_of(99, {})});
  EXPECT_EQ(ENOMEM, posted.error);
  EXPECT_EQ(0, posted.bad);
  // One that is done makes room for one.
  ASSERT_EQ(0, b().post_receive(1));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 0, IBV_WC_SUCCESS));
  const Posted again = a().post_sends({send_of(98, {}), send_of(99, {})});
  EXPECT_EQ(ENOMEM, again.error);
  EXPECT_EQ(1, again.bad);
}

TEST_P(States, PostingInEachState) {
  for (const auto state : kStates) {
    SCOPED_TRACE(state);
    open();
    bring(a(), links_.a, state);
    const Posted receive = a().post_receives({ReceiveOrder{1, {}}, ReceiveOrder{2, {}}});
    EXPECT_EQ(state == IBV_QPS_RESET ? EINVAL : 0, receive.error);
    EXPECT_EQ(state == IBV_QPS_RESET ? 0 : -1, receive.bad);
    const bool sends = state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
    const Posted send = a().post_sends({send_of(3, {}), send_of(4, {})});
    EXPECT_EQ(sends ? 0 : EINVAL, send.error);
    EXPECT_EQ(sends ? -1 : 0, send.bad);
    if (state != IBV_QPS_ERR) {
      EXPECT_TRUE(nothing_comes(a(), Queue::kReceive, kNow));
      continue;
    }
    for (const uint64_t wr_id : {1, 2})
      EXPECT_TRUE(next_is(a(), Queue::kReceive, wr_id, IBV_WC_WR_FLUSH_ERR));
    for (const uint64_t wr_id : {3, 4}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_WR_FLUSH_ERR));
  }
}

TEST_P(States, BadRequestsAreRefusedAtOnce) {
  EndpointSpec spec;
  spec.caps.max_send_sge = 2;
  spec.caps.max_recv_sge = 2;
  open(spec);
  connect();
  const Buffer local = a().add_buffer(8192);
  const ibv_qp_cap caps = a().caps();
  Pieces many;
  for (uint32_t i = 0; i <= std::min(std::max(caps.max_send_sge, caps.max_recv_sge), 31u); ++i)
    many.add(local.piece(0, 1));
  const SendOrder good = rdma(IBV_WR_RDMA_WRITE, 1, {}, local);
  EXPECT_EQ(EINVAL, a().post_send(send_of(2, many)));
  EXPECT_EQ(EINVAL, a().post_receive(2, many));
  SendOrder too_long = send_of(2, {local.piece(0, caps.max_inline_data + 1)});
  too_long.flags |= IBV_SEND_INLINE;
  SendOrder inline_read = rdma(IBV_WR_RDMA_READ, 2, {local.piece(0, 8)}, local);
  inline_read.flags |= IBV_SEND_INLINE;
  SendOrder nonsense = send_of(2, {});
  nonsense.opcode = static_cast<ibv_wr_opcode>(14);
  for (const auto& bad : {too_long, inline_read, nonsense}) {
    const Posted posted = a().post_sends({good, bad, good});
    EXPECT_EQ(EINVAL, posted.error) << bad.opcode;
    EXPECT_EQ(1, posted.bad);
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS)) << "what came before it was posted";
    EXPECT_TRUE(nothing_comes(a(), Queue::kSend, kNow));
  }
  EXPECT_TRUE(state_is(a(), IBV_QPS_RTS));
}

// The first message that comes in RTR tells that the connection stands; receives are served from RTR on.
TEST_P(States, RtrReceives) {
  open();
  bring(a(), links_.a, IBV_QPS_RTS);
  bring(b(), links_.b, IBV_QPS_INIT);
  ASSERT_EQ(0, b().post_receive(1));
  ASSERT_EQ(0, b().post_receive(2));
  ASSERT_EQ(0, b().to_rtr(links_.b));
  for (const uint64_t wr_id : {1, 2}) {
    ASSERT_EQ(0, a().post_send(send_of(wr_id, {})));
    EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, wr_id, IBV_WC_SUCCESS));
  }
  EXPECT_TRUE(event_is(b(), IBV_EVENT_COMM_EST));
  EXPECT_TRUE(no_event(b()));
  EXPECT_TRUE(state_is(b(), IBV_QPS_RTR));
  ASSERT_EQ(0, b().to_rts(links_.b));
  EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
}

TEST_P(States, ErrorFlushesBothQueuesInOrder) {
  open_connected();
  for (const uint64_t wr_id : {1, 2, 3}) ASSERT_EQ(0, a().post_receive(wr_id));
  SendOrder quiet = send_of(5, {});
  quiet.flags = 0;
  ASSERT_EQ(0, a().post_sends({send_of(4, {}), quiet, send_of(6, {})}).error);  // no receives there
  ASSERT_EQ(0, a().to_state(IBV_QPS_ERR));
  for (const uint64_t wr_id : {1, 2, 3})
    EXPECT_TRUE(next_is(a(), Queue::kReceive, wr_id, IBV_WC_WR_FLUSH_ERR));
  for (const uint64_t wr_id : {4, 5, 6}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_WR_FLUSH_ERR));
  EXPECT_TRUE(no_event(a()));
  EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
}

// RESET forgets without a trace: nothing that was posted completes, nothing that completed stays.
TEST_P(States, ResetForgets) {
  open_connected();
  ASSERT_EQ(0, b().post_receive(50));
  ASSERT_EQ(0, a().post_send(send_of(1, {})));  // done, and not polled
  for (const uint64_t wr_id : {2, 3}) ASSERT_EQ(0, a().post_receive(wr_id));
  for (const uint64_t wr_id : {4, 5}) ASSERT_EQ(0, a().post_send(send_of(wr_id, {})));
  ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
  EXPECT_TRUE(nothing_comes(a(), Queue::kReceive));
  const ibv_qp_attr attr = a().query();
  EXPECT_EQ(IBV_QPS_RESET, attr.qp_state);
  EXPECT_EQ(0u, attr.dest_qp_num);
  // And the queues are as deep as ever.
  ASSERT_EQ(0, a().to_init(links_.a));
  for (uint64_t i = 0; i < a().caps().max_recv_wr; ++i) ASSERT_EQ(0, a().post_receive(i)) << i;
}

TEST_P(States, ErrorAndBack) {
  open();
  for (int round = 0; round < 3; ++round) {
    connect();
    ASSERT_EQ(0, b().post_receive(7));
    ASSERT_EQ(0, a().post_send(send_of(8, {})));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 8, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 7, IBV_WC_SUCCESS));
    for (Side* side : {&a(), &b()}) {
      ASSERT_EQ(0, side->to_state(IBV_QPS_ERR));
      ASSERT_EQ(0, side->to_state(IBV_QPS_RESET));
      ASSERT_EQ(0, side->to_state(IBV_QPS_ERR));
      EXPECT_TRUE(state_is(*side, IBV_QPS_ERR));
      ASSERT_EQ(0, side->to_state(IBV_QPS_RESET));
    }
  }
}

// ---- SQD ----

TEST_P(States, SqdHoldsSendsAndServesReceives) {
  open_connected();
  const Buffer local = a().add_buffer(4096);
  ASSERT_EQ(0, a().to_state(IBV_QPS_SQD));
  EXPECT_TRUE(state_is(a(), IBV_QPS_SQD));
  EXPECT_EQ(0, a().query().sq_draining);
  ASSERT_EQ(0, b().post_receive(1));
  ASSERT_EQ(0, a().post_sends({send_of(2, {}), rdma(IBV_WR_RDMA_READ, 3, {}, local)}).error);
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
  EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, kNow));
  ASSERT_EQ(0, a().post_receive(4));
  ASSERT_EQ(0, b().post_send(send_of(5, {})));
  EXPECT_TRUE(next_is(b(), Queue::kSend, 5, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 4, IBV_WC_SUCCESS));
  ASSERT_EQ(0, a().to_state(IBV_QPS_RTS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(no_event(a(), kNow)) << "nobody asked for SQ_DRAINED";
}

TEST_P(States, SqdToErrorFlushesWhatItHeld) {
  open_connected();
  ASSERT_EQ(0, a().to_state(IBV_QPS_SQD));
  ASSERT_EQ(0, a().post_sends({send_of(2, {}), send_of(3, {})}).error);
  ASSERT_EQ(0, a().to_state(IBV_QPS_ERR));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_WR_FLUSH_ERR));
}

int to_sqd(Side& side, bool tell) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = tell ? 1 : 0;
  return ibv_modify_qp(side.endpoint().qp(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

TEST_P(States, SqDrainedComesAtOnceWhenIdle) {
  open_connected();
  ASSERT_EQ(0, to_sqd(a(), true));
  EXPECT_TRUE(event_is(a(), IBV_EVENT_SQ_DRAINED));
  ASSERT_EQ(0, a().to_state(IBV_QPS_RTS));
  ASSERT_EQ(0, to_sqd(a(), false));
  EXPECT_TRUE(no_event(a()));
}

// What was begun is ended, then the event comes; what wasn't waits for RTS.
TEST_P(States, SqDrainedComesAfterWhatWasBegun) {
  if (over_wire()) GTEST_SKIP() << "many requests are under way at once there, so both have begun";
  open_connected();
  // A gigabyte, out of memory that is never touched into the same few pages: long under way, and cheap.
  const Buffer remote = b().add_buffer(1 << 30);
  const Buffer local = a().add_buffer(32 << 20);
  Pieces pieces;
  for (int i = 0; i < 32; ++i) pieces.add(local.all());
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(0, a().post_sends({rdma(IBV_WR_RDMA_READ, 1, pieces, remote),
                                 rdma(IBV_WR_RDMA_READ, 2, {local.piece(0, 64)}, remote)})
                     .error);
    ASSERT_EQ(0, to_sqd(a(), true));
    const bool drains = a().query().sq_draining == 1;
    const int refused = a().to_state(IBV_QPS_RTS);
    EXPECT_TRUE(event_is(a(), IBV_EVENT_SQ_DRAINED));
    EXPECT_EQ(0, a().query().sq_draining);
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    if (!drains || refused == 0) {  // the machine was so slow with us that all was done before SQD
      if (refused != 0) {
        ASSERT_EQ(0, a().to_state(IBV_QPS_RTS));
      }
      EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
      continue;
    }
    EXPECT_EQ(EINVAL, refused) << "it was still draining";
    EXPECT_TRUE(state_is(a(), IBV_QPS_SQD));
    EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
    ASSERT_EQ(0, a().to_state(IBV_QPS_RTS));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
    return;
  }
  FAIL() << "a gigabyte was never under way";
}

}  // namespace
}  // namespace verbena::rc
