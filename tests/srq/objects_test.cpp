// ibv_create_srq and its companions: sizes, refusals, growth, what is busy.
#include <algorithm>

#include "hub.hpp"

namespace verbena::srq {
namespace {

ibv_device_attr device_of(const Hub& hub) {
  ibv_device_attr device{};
  EXPECT_EQ(0, ibv_query_device(hub.context(), &device));
  return device;
}

ibv_srq_attr attributes(uint32_t max_wr, uint32_t max_sge, uint32_t limit = 0) {
  return {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit};
}

TEST(Objects, HaveWhatWasAskedForAtLeast) {
  Hub hub({.max_wr = 0});
  int self = 0;
  ibv_srq_init_attr init{.srq_context = &self, .attr = attributes(100, 3, 77)};
  ibv_srq* srq = ibv_create_srq(hub.pd(), &init);
  ASSERT_NE(nullptr, srq);
  EXPECT_GE(init.attr.max_wr, 100u);
  EXPECT_GE(init.attr.max_sge, 3u);
  EXPECT_EQ(&self, srq->srq_context);
  EXPECT_EQ(hub.pd(), srq->pd);
  EXPECT_EQ(hub.context(), srq->context);
  ibv_srq_attr told{};
  ASSERT_EQ(0, ibv_query_srq(srq, &told));
  EXPECT_EQ(init.attr.max_wr, told.max_wr);
  EXPECT_EQ(init.attr.max_sge, told.max_sge);
  EXPECT_EQ(0u, told.srq_limit) << "only ibv_modify_srq arms it";
  EXPECT_EQ(EBUSY, ibv_dealloc_pd(hub.pd()));
  EXPECT_EQ(0, ibv_destroy_srq(srq));
}

TEST(Objects, KeepToTheDevicesLimits) {
  Hub hub({.max_wr = 0});
  const ibv_device_attr device = device_of(hub);
  const auto made = [&](int wr, int sge) {
    ibv_srq_init_attr init{.srq_context = nullptr,
                           .attr = attributes(static_cast<uint32_t>(wr), static_cast<uint32_t>(sge))};
    errno = 0;
    ibv_srq* srq = ibv_create_srq(hub.pd(), &init);
    if (srq == nullptr) return errno;
    EXPECT_LE(init.attr.max_wr, static_cast<uint32_t>(device.max_srq_wr));
    return ibv_destroy_srq(srq);
  };
  EXPECT_EQ(0, made(device.max_srq_wr, device.max_srq_sge));
  EXPECT_EQ(0, made(1, 1));
  EXPECT_EQ(EINVAL, made(device.max_srq_wr + 1, 1));
  EXPECT_EQ(EINVAL, made(1, device.max_srq_sge + 1));
  EXPECT_EQ(EINVAL, made(0, 1));
}

TEST(Objects, AreManyAndHaveNumbersOfTheirOwn) {
  Hub hub({.max_wr = 0});
  std::vector<ibv_srq*> queues;
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 1000; ++i) {
    ibv_srq_init_attr init{.srq_context = nullptr, .attr = attributes(15, 1)};
    queues.push_back(ibv_create_srq(hub.pd(), &init));
    ASSERT_NE(nullptr, queues.back());
    ASSERT_EQ(0, ibv_get_srq_num(queues.back(), &numbers.emplace_back()));
    EXPECT_LT(numbers.back(), 1u << 24);
  }
  std::ranges::sort(numbers);
  EXPECT_TRUE(std::ranges::unique(numbers).empty());
  for (ibv_srq* srq : queues) EXPECT_EQ(0, ibv_destroy_srq(srq));
}

TEST(Objects, ExtendedForm) {
  Hub hub({.max_wr = 0});
  ibv_srq_init_attr_ex init{};
  init.attr = attributes(32, 2);
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  init.srq_type = IBV_SRQT_BASIC;
  init.pd = hub.pd();
  ibv_srq* srq = ibv_create_srq_ex(hub.context(), &init);
  ASSERT_NE(nullptr, srq);
  EXPECT_GE(init.attr.max_wr, 32u);
  EXPECT_EQ(0, ibv_destroy_srq(srq));
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  EXPECT_EQ(nullptr, ibv_create_srq_ex(hub.context(), &init));
  EXPECT_EQ(EINVAL, errno);
  init.comp_mask |= IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TM;
  init.srq_type = IBV_SRQT_TM;
  EXPECT_EQ(nullptr, ibv_create_srq_ex(hub.context(), &init));
  EXPECT_EQ(EOPNOTSUPP, errno);
}

TEST(Objects, PostingIsCheckedAndBounded) {
  Hub hub({.max_wr = 15, .max_sge = 2});
  ibv_srq_attr told{};
  ASSERT_EQ(0, ibv_query_srq(hub.srq(), &told));
  ibv_sge pieces[33];
  for (auto& piece : pieces) piece = {reinterpret_cast<uint64_t>(hub.mr()->addr), 8, hub.mr()->lkey};
  ibv_recv_wr two[2] = {{.wr_id = 1, .next = &two[1], .sg_list = pieces, .num_sge = 1},
                        {.wr_id = 2, .next = nullptr, .sg_list = pieces, .num_sge = 33}};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(EINVAL, ibv_post_srq_recv(hub.srq(), two, &bad));
  EXPECT_EQ(&two[1], bad);
  for (uint32_t i = 1; i < told.max_wr; ++i) ASSERT_EQ(0, hub.post_shared(i, 0, 8));
  EXPECT_EQ(ENOMEM, hub.post_shared(99, 0, 8));
}

TEST(Objects, AQueuePairHasNoReceivesOfItsOwn) {
  Hub hub;
  ibv_qp* qp = hub.add_qp();
  EXPECT_EQ(hub.srq(), qp->srq);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(0, ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
  EXPECT_EQ(hub.srq(), init.srq);
  EXPECT_EQ(0u, init.cap.max_recv_wr);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(EINVAL, ibv_post_recv(qp, &request, &bad));
  EXPECT_EQ(&request, bad);
  EXPECT_EQ(EBUSY, ibv_destroy_srq(hub.srq()));
}

TEST(Objects, GrowAndShrink) {
  Hub hub({.max_wr = 10});
  EXPECT_NE(0u, device_of(hub).device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
  ibv_srq_attr told{};
  ASSERT_EQ(0, ibv_query_srq(hub.srq(), &told));
  for (uint32_t i = 0; i < told.max_wr; ++i) ASSERT_EQ(0, hub.post_shared(i, 0, 8));
  EXPECT_EQ(ENOMEM, hub.post_shared(99, 0, 8));
  ibv_srq_attr wanted = attributes(5000, 0);
  ASSERT_EQ(0, ibv_modify_srq(hub.srq(), &wanted, IBV_SRQ_MAX_WR));
  ASSERT_EQ(0, ibv_query_srq(hub.srq(), &told));
  EXPECT_GE(told.max_wr, 5000u);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(0, hub.post_shared(i, 0, 8));
  wanted = attributes(15, 0);
  EXPECT_EQ(EINVAL, ibv_modify_srq(hub.srq(), &wanted, IBV_SRQ_MAX_WR)) << "more wait than would fit";
  wanted = attributes(40000, 0);
  EXPECT_EQ(EINVAL, ibv_modify_srq(hub.srq(), &wanted, IBV_SRQ_MAX_WR));
  wanted = attributes(0, 0, told.max_wr + 1);
  EXPECT_EQ(EINVAL, ibv_modify_srq(hub.srq(), &wanted, IBV_SRQ_LIMIT));
  EXPECT_EQ(EINVAL, ibv_modify_srq(hub.srq(), &wanted, 1 << 7));
}

}  // namespace
}  // namespace verbena::srq
