// An id with a shared receive queue: its queue pair takes its receives from there.
#include "ends.hpp"

namespace verbena::cm_test {
namespace {

TEST(Srq, IsTheIdsQueuePairs) {
  Pair pair(Pair::Unanswered{});
  rdma_cm_id* passive = pair.passive.get();
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = 8;
  wanted.attr.max_sge = 1;
  ASSERT_EQ(rdma_create_srq(passive, nullptr, &wanted), 0) << std::strerror(errno);
  ASSERT_NE(passive->srq, nullptr);
  EXPECT_EQ(passive->srq->pd, passive->pd);
  EXPECT_NE(rdma_create_srq(passive, nullptr, &wanted), 0) << "it has one";
  give_queue_pair(passive);
  ASSERT_EQ(passive->qp->srq, passive->srq);

  char received[64] = {};
  ibv_mr* mr = rdma_reg_msgs(passive, received, sizeof received);
  ASSERT_NE(mr, nullptr);
  // It posts to the shared queue where the id has one.
  ASSERT_EQ(rdma_post_recv(passive, &received, received, sizeof received, mr), 0) << std::strerror(errno);
  auto accepted = parameters();
  ASSERT_EQ(rdma_accept(passive, &accepted), 0);
  ASSERT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
  ASSERT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED));

  rdma_cm_id* active = pair.active.get();
  char sent[64] = "by a shared queue";
  ibv_mr* source = rdma_reg_msgs(active, sent, sizeof sent);
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(rdma_post_send(active, nullptr, sent, sizeof sent, source, IBV_SEND_SIGNALED), 0);
  ibv_wc completion{};
  while (ibv_poll_cq(passive->qp->recv_cq, 1, &completion) == 0) {
  }
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.wr_id, reinterpret_cast<uint64_t>(&received));
  EXPECT_EQ(completion.qp_num, passive->qp->qp_num);
  EXPECT_STREQ(received, sent);
  EXPECT_EQ(rdma_dereg_mr(source), 0);
  rdma_destroy_qp(passive);
  EXPECT_EQ(rdma_dereg_mr(mr), 0);
  rdma_destroy_srq(passive);
  EXPECT_EQ(passive->srq, nullptr);
}

}  // namespace
}  // namespace verbena::cm_test
