// What needs no device, through the fronts as a program calls it.
#include <gtest/gtest.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

// Historical exports without a public header.
extern "C" {
const char* ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec*, ib_user_path_rec*);
void ibv_copy_path_rec_to_kern(ib_user_path_rec*, ibv_sa_path_rec*);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr*, ib_uverbs_qp_attr*);
}

namespace {

TEST(Rates, ConvertBothWays) {
  for (int code = IBV_RATE_2_5_GBPS; code <= IBV_RATE_1200_GBPS; ++code) {
    const auto rate = static_cast<ibv_rate>(code);
    EXPECT_GT(ibv_rate_to_mbps(rate), 0) << code;
    EXPECT_EQ(rate, mbps_to_ibv_rate(ibv_rate_to_mbps(rate)));
    if (ibv_rate_to_mult(rate) > 0) {
      EXPECT_EQ(rate, mult_to_ibv_rate(ibv_rate_to_mult(rate)));
    }
  }
  EXPECT_EQ(5000, ibv_rate_to_mbps(IBV_RATE_5_GBPS));
  EXPECT_EQ(2, ibv_rate_to_mult(IBV_RATE_5_GBPS));
  EXPECT_EQ(-1, ibv_rate_to_mult(IBV_RATE_MAX));
  EXPECT_EQ(IBV_RATE_MAX, mult_to_ibv_rate(-1));
  EXPECT_EQ(IBV_RATE_MAX, mbps_to_ibv_rate(1));
}

// Every number has a word of its own, and a number outside has one too.
template <typename Enum>
void expect_words(const char* (*word)(Enum), int first, int last) {
  std::set<std::string> words;
  for (int number = first - 1; number <= last + 1; ++number) {
    ASSERT_NE(nullptr, word(static_cast<Enum>(number)));
    words.insert(word(static_cast<Enum>(number)));
  }
  EXPECT_EQ(static_cast<size_t>(last - first + 2), words.size());
}

TEST(Strings, NameEveryNumber) {
  expect_words(ibv_node_type_str, IBV_NODE_CA, IBV_NODE_UNSPECIFIED);
  expect_words(ibv_port_state_str, IBV_PORT_NOP, IBV_PORT_ACTIVE_DEFER);
  expect_words(ibv_event_type_str, IBV_EVENT_CQ_ERR, IBV_EVENT_WQ_FATAL);
  expect_words(ibv_wc_status_str, IBV_WC_SUCCESS, IBV_WC_TM_RNDV_INCOMPLETE);
  expect_words(rdma_event_str, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_STREQ("RDMA_CM_EVENT_REJECTED", rdma_event_str(RDMA_CM_EVENT_REJECTED));
}

TEST(Stubs, RefuseByTheConventionOfEachCall) {
  errno = 0;
  EXPECT_EQ(nullptr, ibv_reg_dmabuf_mr(nullptr, 0, 0, 0, 0, 0));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_EQ(EOPNOTSUPP, ibv_resolve_eth_l2_from_gid(nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(0, ibv_query_qp_data_in_order(nullptr, IBV_WR_SEND, 0));
  errno = 0;
  EXPECT_EQ(-1, rsocket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_EQ(-1, riomap(0, nullptr, 0, 0, 0, 0));  // 64 bits of it
  rdma_freeaddrinfo(nullptr);
}

TEST(Fork, NeedsNoPreparation) {
  EXPECT_EQ(0, ibv_fork_init());
  EXPECT_EQ(IBV_FORK_UNNEEDED, ibv_is_fork_initialized());
}

TEST(Sysfs, ReadsAnAttributeWithoutItsNewline) {
  EXPECT_STREQ("/sys", ibv_get_sysfs_path());
  const std::string dir = testing::TempDir();
  std::ofstream(dir + "/verbena_attribute") << "42\n";
  char value[8] = "xxxxxxx";
  EXPECT_EQ(2, ibv_read_sysfs_file(dir.c_str(), "verbena_attribute", value, sizeof value));
  EXPECT_STREQ("42", value);
  std::remove((dir + "/verbena_attribute").c_str());
  EXPECT_EQ(-1, ibv_read_sysfs_file(dir.c_str(), "verbena_attribute", value, sizeof value));
}

TEST(Marshall, PathRecordsSurviveBothWays) {
  ib_user_path_rec kernel{};
  std::memset(&kernel, 7, sizeof kernel);
  kernel.mtu = 4;
  ibv_sa_path_rec record{};
  ib_user_path_rec back{};
  ibv_copy_path_rec_from_kern(&record, &kernel);
  EXPECT_EQ(4, record.mtu);
  EXPECT_EQ(7, record.preference);
  ibv_copy_path_rec_to_kern(&back, &record);
  EXPECT_EQ(0, std::memcmp(&kernel, &back, sizeof kernel));
}

TEST(Marshall, QueuePairAttributesAreCopied) {
  ib_uverbs_qp_attr kernel{};
  kernel.qp_state = IBV_QPS_RTR;
  kernel.max_recv_sge = 3;
  kernel.ah_attr.grh.dgid[15] = 9;
  kernel.alt_timeout = 5;
  ibv_qp_attr attr{};
  ibv_copy_qp_attr_from_kern(&attr, &kernel);
  EXPECT_EQ(IBV_QPS_RTR, attr.qp_state);
  EXPECT_EQ(3u, attr.cap.max_recv_sge);
  EXPECT_EQ(9, attr.ah_attr.grh.dgid.raw[15]);
  EXPECT_EQ(5, attr.alt_timeout);
}

}  // namespace
