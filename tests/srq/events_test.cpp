// The events of shared receive queues, and how one queue pair's end leaves the others alone.
#include "hub.hpp"

namespace verbena::srq {
namespace {

class Events : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      targets_[i] = hub_.add_qp();
      sources_[i] = requester_.add_qp();
      Hub::connect(hub_, targets_[i], requester_, sources_[i]);
    }
  }
  int arm(uint32_t limit) {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    return ibv_modify_srq(hub_.srq(), &attr, IBV_SRQ_LIMIT);
  }
  uint32_t limit() {
    ibv_srq_attr attr{};
    EXPECT_EQ(0, ibv_query_srq(hub_.srq(), &attr));
    return attr.srq_limit;
  }
  void send(int source, uint64_t wr_id, uint32_t length = 64) {
    ASSERT_EQ(0, requester_.send(sources_[source], wr_id, 0, length));
  }

  Hub hub_;
  Hub requester_{{.max_wr = 0}};
  ibv_qp* targets_[2];
  ibv_qp* sources_[2];
};

TEST_F(Events, TheLimitIsToldOnceForEachArming) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(0, hub_.post_shared(i, 0, 64));
  ASSERT_EQ(0, arm(6));
  EXPECT_EQ(6u, limit());
  send(0, 1);
  send(1, 2);
  EXPECT_TRUE(hub_.no_event()) << "six are left";
  send(0, 3);
  EXPECT_TRUE(hub_.event_is(IBV_EVENT_SRQ_LIMIT_REACHED, hub_.srq())) << "without a poll";
  EXPECT_EQ(0u, limit());
  send(1, 4);
  EXPECT_TRUE(hub_.no_event());
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(IBV_WC_SUCCESS, hub_.next().status);

  ASSERT_EQ(0, arm(4));
  EXPECT_TRUE(hub_.no_event());
  send(0, 5);
  EXPECT_EQ(IBV_WC_SUCCESS, hub_.next().status);
  EXPECT_TRUE(hub_.event_is(IBV_EVENT_SRQ_LIMIT_REACHED, hub_.srq()));
  ASSERT_EQ(0, arm(4));
  EXPECT_TRUE(hub_.event_is(IBV_EVENT_SRQ_LIMIT_REACHED, hub_.srq())) << "three are left when it is armed";
}

TEST_F(Events, AQueuePairInErrorFlushesNothing) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(0, hub_.post_shared(i, 0, 64));
  ASSERT_EQ(0, Hub::to_state(targets_[0], IBV_QPS_ERR));
  EXPECT_TRUE(hub_.event_is(IBV_EVENT_QP_LAST_WQE_REACHED, targets_[0]));
  EXPECT_TRUE(hub_.nothing_comes());
  EXPECT_TRUE(hub_.no_event(rc::kNow));
  for (uint64_t i = 0; i < 4; ++i) {
    send(1, i);
    EXPECT_TRUE(hub_.next_is(i, IBV_WC_SUCCESS, targets_[1]->qp_num));
  }
  // And comes back to life.
  ASSERT_EQ(0, Hub::to_state(targets_[0], IBV_QPS_RESET));
  ASSERT_EQ(0, Hub::to_state(sources_[0], IBV_QPS_RESET));
  Hub::connect(hub_, targets_[0], requester_, sources_[0]);
  ASSERT_EQ(0, hub_.post_shared(9, 0, 64));
  send(0, 1);
  EXPECT_TRUE(hub_.next_is(9, IBV_WC_SUCCESS, targets_[0]->qp_num));
}

TEST_F(Events, AMessageTooLongFailsItsQueuePairOnly) {
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(0, hub_.post_shared(i, 0, 64));
  send(0, 1, 65);
  EXPECT_TRUE(requester_.next_is(1, IBV_WC_REM_INV_REQ_ERR, sources_[0]->qp_num));
  EXPECT_TRUE(hub_.next_is(0, IBV_WC_LOC_LEN_ERR, targets_[0]->qp_num));
  EXPECT_TRUE(hub_.event_is(IBV_EVENT_QP_LAST_WQE_REACHED, targets_[0]));
  EXPECT_EQ(IBV_QPS_ERR, Hub::state_of(targets_[0]));
  send(1, 2);
  EXPECT_TRUE(hub_.next_is(1, IBV_WC_SUCCESS, targets_[1]->qp_num));
}

TEST_F(Events, AReceiveOfBadMemoryFailsItsQueuePairOnly) {
  ibv_sge sge{reinterpret_cast<uint64_t>(hub_.mr()->addr), 64, hub_.mr()->lkey ^ 0x55};
  ibv_recv_wr request{.wr_id = 5, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(0, ibv_post_srq_recv(hub_.srq(), &request, &bad));
  ASSERT_EQ(0, hub_.post_shared(6, 0, 64));
  send(0, 1);
  EXPECT_TRUE(requester_.next_is(1, IBV_WC_REM_OP_ERR, sources_[0]->qp_num));
  EXPECT_TRUE(hub_.next_is(5, IBV_WC_LOC_PROT_ERR, targets_[0]->qp_num));
  send(1, 2);
  EXPECT_TRUE(hub_.next_is(6, IBV_WC_SUCCESS, targets_[1]->qp_num));
}

TEST_F(Events, DestroyedInTheMiddleOfAMessage) {
  constexpr uint32_t kLong = 3 << 20;
  auto* const last = static_cast<volatile char*>(hub_.mr()->addr) + kLong - 1;
  static_cast<volatile char*>(requester_.mr()->addr)[kLong - 1] = 1;
  for (int round = 0; round < 20; ++round) {
    *last = 0;
    ASSERT_EQ(0, hub_.post_shared(1, 0, kLong));
    send(0, 1, kLong);
    hub_.destroy(targets_[0]);
    // Whatever had come of it, the receive is there for the next one. If all had come it was completed, and
    // the completion went with the queue pair.
    const ibv_wc got = hub_.next(rc::kNow);
    if (got.status == rc::kNone && *last == 0) {
      send(1, 2, 64);
      ASSERT_TRUE(hub_.next_is(1, IBV_WC_SUCCESS, targets_[1]->qp_num)) << "round " << round;
      ASSERT_TRUE(requester_.next_is(2, IBV_WC_SUCCESS, sources_[1]->qp_num));
    }
    requester_.destroy(sources_[0]);
    while (requester_.next(rc::kNow).status != rc::kNone) {
    }
    targets_[0] = hub_.add_qp();
    sources_[0] = requester_.add_qp();
    Hub::connect(hub_, targets_[0], requester_, sources_[0]);
  }
}

}  // namespace
}  // namespace verbena::srq
