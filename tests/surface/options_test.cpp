// What the device says of itself and keeps to, and the calls that are refused on purpose.
#include <algorithm>
#include <memory>

#include "end.hpp"

namespace verbena::surface {
namespace {

ibv_device_attr_ex limits() {
  ibv_device_attr_ex attr{};
  EXPECT_EQ(0, ibv_query_device_ex(device(), nullptr, &attr));
  return attr;
}

TEST(Device, WhatItSaysOfItself) {
  const ibv_device_attr_ex attr = limits();
  EXPECT_NE(0u, attr.orig_attr.vendor_id);
  EXPECT_EQ(UINT64_MAX, attr.completion_timestamp_mask);
  EXPECT_EQ(1'000'000u, attr.hca_core_clock);  // kHz
  EXPECT_EQ(1u, attr.phys_port_cnt_ex);
  EXPECT_EQ(UINT16_MAX, attr.cq_mod_caps.max_cq_count);
  EXPECT_EQ(UINT16_MAX, attr.cq_mod_caps.max_cq_period);
  EXPECT_EQ(attr.orig_attr.device_cap_flags, static_cast<unsigned>(attr.device_cap_flags_ex));
  // What isn't there.
  EXPECT_EQ(0u, attr.raw_packet_caps);
  EXPECT_EQ(0u, attr.tso_caps.max_tso);
  EXPECT_EQ(0u, attr.tm_caps.max_num_tags);
  EXPECT_EQ(0u, attr.packet_pacing_caps.qp_rate_limit_max);
  EXPECT_EQ(0u, attr.rss_caps.supported_qpts);
  EXPECT_EQ(0u, attr.max_wq_type_rq);
  EXPECT_EQ(0u, attr.pci_atomic_caps.fetch_add);
}

TEST(Device, ShorterAndLongerCallersGetTheirShare) {
  struct Longer {
    ibv_device_attr_ex known;
    uint64_t newer[4];
  } longer;
  std::memset(static_cast<void*>(&longer), 0xff, sizeof longer);
  auto* ops = verbs_get_ctx(device());
  ASSERT_EQ(0, ops->query_device_ex(device(), nullptr, &longer.known, sizeof longer));
  for (const uint64_t word : longer.newer) EXPECT_EQ(0u, word);
  std::memset(static_cast<void*>(&longer), 0xff, sizeof longer);
  ASSERT_EQ(0, ops->query_device_ex(device(), nullptr, &longer.known, sizeof(ibv_device_attr)));
  EXPECT_EQ(UINT64_MAX, longer.known.completion_timestamp_mask);  // not touched
  EXPECT_EQ(EINVAL, ops->query_device_ex(device(), nullptr, &longer.known, sizeof(ibv_device_attr) - 1));
}

// ---- Limits are what they are said to be. ----

struct Cap {
  const char* name;
  uint32_t ibv_qp_cap::*field;
  int (*limit)(const ibv_device_attr&);
};

TEST(Limits, QueuePairCaps) {
  const ibv_device_attr attr = limits().orig_attr;
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_cq* cq = ibv_create_cq(device(), 16, nullptr, nullptr, 0);
  const Cap rows[] = {
      {"max_send_wr", &ibv_qp_cap::max_send_wr, [](const ibv_device_attr& a) { return a.max_qp_wr; }},
      {"max_recv_wr", &ibv_qp_cap::max_recv_wr, [](const ibv_device_attr& a) { return a.max_qp_wr; }},
      {"max_send_sge", &ibv_qp_cap::max_send_sge, [](const ibv_device_attr& a) { return a.max_sge; }},
      {"max_recv_sge", &ibv_qp_cap::max_recv_sge, [](const ibv_device_attr& a) { return a.max_sge; }},
  };
  for (const Cap& row : rows) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    init.cap.*row.field = static_cast<uint32_t>(row.limit(attr));
    ibv_qp* made = ibv_create_qp(pd, &init);
    ASSERT_NE(nullptr, made) << row.name;
    EXPECT_GE(init.cap.*row.field, static_cast<uint32_t>(row.limit(attr)));
    EXPECT_EQ(0, ibv_destroy_qp(made));
    init.cap.*row.field = static_cast<uint32_t>(row.limit(attr)) + 1;
    EXPECT_EQ(nullptr, ibv_create_qp(pd, &init)) << row.name;
    EXPECT_EQ(EINVAL, errno);
  }
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST(Limits, AsManyDomainsAsItSays) {
  std::vector<ibv_pd*> made;
  const auto most = static_cast<size_t>(limits().orig_attr.max_pd);
  errno = 0;
  while (ibv_pd* pd = ibv_alloc_pd(device())) made.push_back(pd);
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(most, made.size());
  for (ibv_pd* pd : made) ASSERT_EQ(0, ibv_dealloc_pd(pd));
}

TEST(Limits, AsManyCompletionQueuesAsItSays) {
  std::vector<ibv_cq*> made;
  const auto most = static_cast<size_t>(limits().orig_attr.max_cq);
  errno = 0;
  while (ibv_cq* cq = ibv_create_cq(device(), 1, nullptr, nullptr, 0)) made.push_back(cq);
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(most, made.size());
  for (ibv_cq* cq : made) ASSERT_EQ(0, ibv_destroy_cq(cq));
}

TEST(Limits, AsManyQueuePairsAsItSays) {
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_cq* cq = ibv_create_cq(device(), 1, nullptr, nullptr, 0);
  std::vector<ibv_qp*> made;
  const auto most = static_cast<size_t>(limits().orig_attr.max_qp);
  errno = 0;
  for (;;) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    ibv_qp* qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) break;
    made.push_back(qp);
  }
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(most, made.size());
  for (ibv_qp* qp : made) ASSERT_EQ(0, ibv_destroy_qp(qp));
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

// ---- Refused on purpose. ----

TEST(NotThere, RawPacketsAndWhatBelongsToThem) {
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_cq* cq = ibv_create_cq(device(), 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RAW_PACKET;
  EXPECT_EQ(nullptr, ibv_create_qp(pd, &init));
  EXPECT_EQ(EOPNOTSUPP, errno);
  End end;
  ibv_flow_attr flow{};
  errno = 0;
  EXPECT_EQ(nullptr, ibv_create_flow(end.qp(), &flow));
  EXPECT_EQ(EOPNOTSUPP, errno);
  ibv_wq_init_attr wq{};
  wq.pd = pd;
  wq.cq = cq;
  errno = 0;
  EXPECT_EQ(nullptr, ibv_create_wq(device(), &wq));
  EXPECT_EQ(EOPNOTSUPP, errno);
  ibv_rwq_ind_table_init_attr table{};
  errno = 0;
  EXPECT_EQ(nullptr, ibv_create_rwq_ind_table(device(), &table));
  EXPECT_EQ(EOPNOTSUPP, errno);
  ibv_counters_init_attr counters{};
  errno = 0;
  EXPECT_EQ(nullptr, ibv_create_counters(device(), &counters));
  EXPECT_EQ(EOPNOTSUPP, errno);
  ibv_flow_action_esp_attr esp{};
  errno = 0;
  EXPECT_EQ(nullptr, ibv_create_flow_action_esp(device(), &esp));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

// ---- Accepted without effect. ----

TEST(Options, EnhancedConnectionEstablishment) {
  End a, b;
  ibv_ece ece{.vendor_id = 0x2c9, .options = 0xffff, .comp_mask = 0};
  EXPECT_EQ(0, ibv_set_ece(a.qp(), &ece));
  EXPECT_EQ(0, ibv_query_ece(a.qp(), &ece));
  EXPECT_EQ(0u, ece.options);  // none of them is ours
  ece.comp_mask = 1;
  EXPECT_EQ(EINVAL, ibv_set_ece(a.qp(), &ece));
  connect(a, b);
  ece = {};
  EXPECT_EQ(EINVAL, ibv_set_ece(a.qp(), &ece));
}

TEST(Options, RateLimits) {
  End a, b;
  ibv_qp_rate_limit_attr attr{};
  attr.rate_limit = 1'000'000;
  EXPECT_EQ(EINVAL, ibv_modify_qp_rate_limit(a.qp(), &attr));
  connect(a, b);
  EXPECT_EQ(0, ibv_modify_qp_rate_limit(a.qp(), &attr));
  attr.comp_mask = 1;
  EXPECT_EQ(EINVAL, ibv_modify_qp_rate_limit(a.qp(), &attr));
}

TEST(Options, DataIsNotPromisedInOrder) {
  End a;
  EXPECT_EQ(0, ibv_query_qp_data_in_order(a.qp(), IBV_WR_RDMA_WRITE, 0));
}

}  // namespace
}  // namespace verbena::surface
