// rdma_getaddrinfo: hints and what comes of them.
#include <netdb.h>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

struct Row {
  const char* name;
  const char* node;
  const char* service;
  int flags;
  int family;
  int qp_type;
  int space;
  int answer;  // 0, or an EAI_ code
  int found_family;
  int found_qp_type;
  int found_space;
  uint16_t found_port;
};

class AddressInfo : public testing::TestWithParam<Row> {};

TEST_P(AddressInfo, FindsWhatTheHintsAskFor) {
  const Row& row = GetParam();
  rdma_addrinfo hints{};
  hints.ai_flags = row.flags;
  hints.ai_family = row.family;
  hints.ai_qp_type = row.qp_type;
  hints.ai_port_space = row.space;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(row.node, row.service, &hints, &found), row.answer);
  if (row.answer != 0) return;
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->ai_family, row.found_family);
  EXPECT_EQ(found->ai_qp_type, row.found_qp_type);
  EXPECT_EQ(found->ai_port_space, row.found_space);
  const bool passive = (row.flags & RAI_PASSIVE) != 0;
  EXPECT_EQ(found->ai_src_addr != nullptr, passive);
  EXPECT_EQ(found->ai_dst_addr != nullptr, !passive);
  const sockaddr* address = passive ? found->ai_src_addr : found->ai_dst_addr;
  uint16_t port = 0;
  std::memcpy(&port, address->sa_data, sizeof port);  // first in both families
  EXPECT_EQ(ntohs(port), row.found_port);
  rdma_freeaddrinfo(found);
}

INSTANTIATE_TEST_SUITE_P(
    Cm, AddressInfo,
    testing::Values(
        Row{"Plain", "127.0.0.1", "7471", 0, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 7471},
        Row{"Passive", "127.0.0.1", "7471", RAI_PASSIVE, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 7471},
        Row{"Wildcard", nullptr, "7471", RAI_PASSIVE, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 7471},
        Row{"Numeric", "::1", "1", RAI_NUMERICHOST, 0, 0, 0, 0, AF_INET6, IBV_QPT_RC, RDMA_PS_TCP, 1},
        Row{"NotNumeric", "localhost", "1", RAI_NUMERICHOST, 0, 0, 0, EAI_NONAME, 0, 0, 0, 0},
        Row{"NoRoute", "127.0.0.1", "1", RAI_NOROUTE, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 1},
        Row{"Family", "localhost", "1", RAI_FAMILY, AF_INET, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 1},
        Row{"Datagrams", "127.0.0.1", "1", 0, 0, IBV_QPT_UD, 0, 0, AF_INET, IBV_QPT_UD, RDMA_PS_UDP, 1},
        Row{"UdpSpace", "127.0.0.1", "1", 0, 0, 0, RDMA_PS_UDP, 0, AF_INET, IBV_QPT_UD, RDMA_PS_UDP, 1},
        Row{"IbSpace", "127.0.0.1", "1", 0, 0, 0, RDMA_PS_IB, 0, AF_INET, IBV_QPT_RC, RDMA_PS_IB, 1},
        Row{"Service", "127.0.0.1", "ssh", 0, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 22},
        Row{"NoPort", "127.0.0.1", nullptr, 0, 0, 0, 0, 0, AF_INET, IBV_QPT_RC, RDMA_PS_TCP, 0},
        Row{"Disagreeing", "127.0.0.1", "1", 0, 0, IBV_QPT_UD, RDMA_PS_TCP, EAI_SOCKTYPE, 0, 0, 0, 0},
        Row{"UnknownFlag", "127.0.0.1", "1", 1 << 20, 0, 0, 0, EAI_BADFLAGS, 0, 0, 0, 0},
        Row{"OnlyHints", nullptr, nullptr, 0, 0, 0, 0, EAI_NONAME, 0, 0, 0, 0}),
    [](const auto& row) { return row.param.name; });

TEST(AddressInfoOnce, WithoutHints) {
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", nullptr, &found), 0);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(found->ai_port_space, RDMA_PS_TCP);
  rdma_freeaddrinfo(found);
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &found), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(AddressInfoOnce, TheSourceOfTheHintsGoesAlong) {
  Address source("127.0.0.1");
  rdma_addrinfo hints{};
  hints.ai_src_addr = source.get();
  hints.ai_src_len = sizeof(sockaddr_in);
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found), 0);
  ASSERT_EQ(found->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(std::memcmp(found->ai_src_addr, source.get(), sizeof(sockaddr_in)), 0);
  rdma_freeaddrinfo(found);
}

}  // namespace
}  // namespace verbena::cm_test
