// As many as ibv_query_device says, and not one more: ENOMEM then, and what was destroyed makes room again.
// Domains, queues and caps are in options_test, completion entries in rc, shared queues' caps in srq, device
// memory in memory. max_mr is in none: 786,431 registrations, each of which looks at what is mapped, take
// minutes.
#include "end.hpp"

namespace verbena::surface {
namespace {

ibv_device_attr limits() {
  ibv_device_attr attr{};
  EXPECT_EQ(0, ibv_query_device(device(), &attr));
  return attr;
}

// Makes them until that is refused.
template <typename Make, typename Destroy>
void expect_just(int most, Make make, Destroy destroy) {
  std::vector<decltype(make())> made;
  made.reserve(static_cast<size_t>(most) + 1);
  errno = 0;
  while (made.size() <= static_cast<size_t>(most)) {
    const auto one = make();
    if (one == nullptr) break;
    made.push_back(one);
  }
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(static_cast<size_t>(most), made.size());
  if (made.empty()) return;
  ASSERT_EQ(0, destroy(made.back()));
  made.back() = make();
  EXPECT_NE(nullptr, made.back());
  for (const auto one : made) ASSERT_EQ(0, destroy(one));
}

TEST(Limits, SharedReceiveQueues) {
  ibv_pd* pd = ibv_alloc_pd(device());
  expect_just(
      limits().max_srq,
      [&] {
        ibv_srq_init_attr init{};
        init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
        return ibv_create_srq(pd, &init);
      },
      ibv_destroy_srq);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST(Limits, AddressHandles) {
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  ASSERT_EQ(0, ibv_query_gid(device(), 1, 0, &attr.grh.dgid));
  expect_just(
      limits().max_ah, [&] { return ibv_create_ah(pd, &attr); }, ibv_destroy_ah);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST(Limits, MemoryWindows) {
  ibv_pd* pd = ibv_alloc_pd(device());
  expect_just(
      limits().max_mw, [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); }, ibv_dealloc_mw);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

// READs and atomics under way, as target and as initiator.
TEST(Limits, FetchesUnderWay) {
  const ibv_device_attr device_limits = limits();
  End end;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  ASSERT_EQ(0, ibv_modify_qp(end.qp(), &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = end.qp()->qp_num;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  ASSERT_EQ(0, ibv_query_gid(device(), 1, 0, &attr.ah_attr.grh.dgid));
  const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device_limits.max_qp_rd_atom + 1);
  EXPECT_EQ(EINVAL, ibv_modify_qp(end.qp(), &attr, to_rtr));
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device_limits.max_qp_rd_atom);
  EXPECT_EQ(0, ibv_modify_qp(end.qp(), &attr, to_rtr));
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  const int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                     IBV_QP_MAX_QP_RD_ATOMIC;
  attr.max_rd_atomic = static_cast<uint8_t>(device_limits.max_qp_init_rd_atom + 1);
  EXPECT_EQ(EINVAL, ibv_modify_qp(end.qp(), &attr, to_rts));
  attr.max_rd_atomic = static_cast<uint8_t>(device_limits.max_qp_init_rd_atom);
  EXPECT_EQ(0, ibv_modify_qp(end.qp(), &attr, to_rts));
}

}  // namespace
}  // namespace verbena::surface
