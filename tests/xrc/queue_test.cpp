// The shared receive queue's limit, and what of memory windows there is over XRC.
#include <cerrno>

#include "pair.hpp"

namespace verbena::xrc {
namespace {

class Queue : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(pair.connect()); }
  // As far as ibv_post_send.
  [[nodiscard]] int post(ibv_wr_opcode opcode) {
    return pair.party.post(pair.initiator, 1,
                           {.opcode = opcode,
                            .length = 8,
                            .srq = pair.party.srq_number(),
                            .rkey = pair.party.mr()->rkey,
                            .address = pair.address(kBytes / 2)});
  }
  Pair pair;
};

// The event comes once, when fewer are left than the limit, though nobody has polled.
TEST_F(Queue, LimitIsTold) {
  Party& party = pair.party;
  for (unsigned i = 0; i < 6; ++i) ASSERT_EQ(0, party.post_receive(i, kBytes / 2, 64));
  ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 4};
  ASSERT_EQ(0, ibv_modify_srq(party.srq(), &limit, IBV_SRQ_LIMIT));
  for (unsigned i = 0; i < 2; ++i) {
    ASSERT_EQ(0, party.post(pair.initiator, i, {.srq = party.srq_number()}));
    ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  }
  EXPECT_EQ(IBV_EVENT_DEVICE_FATAL, next_event(party.context(), 50).event_type) << "four are left";
  ASSERT_EQ(0, party.post(pair.initiator, 3, {.srq = party.srq_number()}));
  ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  const ibv_async_event event = next_event(party.context());
  EXPECT_EQ(IBV_EVENT_SRQ_LIMIT_REACHED, event.event_type);
  EXPECT_EQ(party.srq(), event.element.srq);
  ibv_srq_attr after{};
  ASSERT_EQ(0, ibv_query_srq(party.srq(), &after));
  EXPECT_EQ(0u, after.srq_limit);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(IBV_WC_SUCCESS, party.received().status);
  ASSERT_EQ(IBV_WC_SUCCESS, pair.send());
  EXPECT_EQ(IBV_EVENT_DEVICE_FATAL, next_event(party.context(), 50).event_type) << "once";
}

// A window of type 1 belongs to its protection domain, which is the shared queue's too.
TEST_F(Queue, WindowsOfType1AreReached) {
  Party& party = pair.party;
  ibv_mr* region = ibv_reg_mr(party.pd(), party.bytes().data() + kBytes / 2, 4096,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ASSERT_NE(nullptr, region);
  ibv_mw* window = ibv_alloc_mw(party.pd(), IBV_MW_TYPE_1);
  ASSERT_NE(nullptr, window);
  ibv_mw_bind bind{};
  bind.bind_info = {.mr = region,
                    .addr = pair.address(kBytes / 2),
                    .length = 4096,
                    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(0, ibv_bind_mw(pair.initiator, window, &bind));
  ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  party.bytes()[0] = 0x5a;
  ASSERT_EQ(0, party.post(pair.initiator, 1,
                          {.opcode = IBV_WR_RDMA_WRITE,
                           .length = 16,
                           .srq = party.srq_number(),
                           .rkey = window->rkey,
                           .address = pair.address(kBytes / 2)}));
  EXPECT_EQ(IBV_WC_SUCCESS, party.sent().status);
  EXPECT_EQ(0x5a, party.bytes()[kBytes / 2]);
  ASSERT_EQ(0, party.post(pair.initiator, 2,
                          {.opcode = IBV_WR_RDMA_READ,
                           .length = 16,
                           .srq = party.srq_number(),
                           .rkey = window->rkey,
                           .address = pair.address(kBytes / 2)}));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, party.sent().status) << "it is for writing";
  EXPECT_EQ(0, ibv_dealloc_mw(window));
  EXPECT_EQ(0, ibv_dereg_mr(region));
}

// Windows of type 2 are reached by the queue pair that binds them, which here is reached by nobody.
TEST_F(Queue, WhatIsOfRcAloneIsRefused) {
  EXPECT_EQ(EINVAL, post(IBV_WR_ATOMIC_WRITE));
  EXPECT_EQ(EINVAL, post(IBV_WR_SEND_WITH_INV));
  EXPECT_EQ(EINVAL, post(IBV_WR_LOCAL_INV));
  ibv_mw* window = ibv_alloc_mw(pair.party.pd(), IBV_MW_TYPE_2);
  ASSERT_NE(nullptr, window);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  wr.bind_mw.bind_info = {.mr = pair.party.mr(),
                          .addr = pair.address(0),
                          .length = 64,
                          .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(EINVAL, ibv_post_send(pair.initiator, &wr, &bad));
  EXPECT_EQ(&wr, bad);
  EXPECT_EQ(0, ibv_dealloc_mw(window));
  ibv_qp_init_attr_ex init{};
  init.send_cq = pair.initiator->send_cq;
  init.cap = {.max_send_wr = 4, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pair.party.pd();
  for (const uint64_t operation :
       {IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_EX_WITH_BIND_MW}) {
    init.send_ops_flags = operation;
    EXPECT_EQ(nullptr, ibv_create_qp_ex(pair.party.context(), &init));
    EXPECT_EQ(EOPNOTSUPP, errno);
  }
  EXPECT_EQ(IBV_WC_SUCCESS, pair.send()) << "nothing has happened to the queue pair";
}

}  // namespace
}  // namespace verbena::xrc
