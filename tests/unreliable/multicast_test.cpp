// Multicast: who is attached to a group gets what is sent to it, and nobody else.
#include <arpa/inet.h>

#include <cstring>

#include "end.hpp"
#include "support/isolated.hpp"

namespace verbena::unreliable {
namespace {

constexpr uint32_t kGrh = 40;
constexpr uint32_t kMulticastQpn = 0xffffff;

ibv_gid group(const char* address) {
  ibv_gid gid{};
  EXPECT_EQ(::inet_pton(AF_INET6, address, &gid), 1);
  return gid;
}

struct Multicast : testing::Test {
  Multicast() {
    // lo is all there is in this namespace, and takes multicast only if told so.
    EXPECT_TRUE(support::ip("link set lo multicast on"));
    (void)support::ip("route replace 224.0.0.0/4 dev lo");
    for (End* end : {&sender, &member, &other, &stranger}) end->ready_datagrams();
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = mgid;
    ah = ibv_create_ah(sender.pd(), &attr);
  }
  ~Multicast() override { EXPECT_EQ(ibv_destroy_ah(ah), 0); }
  [[nodiscard]] Message message(uint64_t wr_id) const {
    return {.wr_id = wr_id, .length = 100, .ah = ah, .target = kMulticastQpn};
  }
  const ibv_gid mgid = group("::ffff:239.1.2.3");
  End sender{IBV_QPT_UD};
  End member{IBV_QPT_UD};
  End other{IBV_QPT_UD};
  End stranger{IBV_QPT_UD};
  ibv_ah* ah = nullptr;
};

TEST_F(Multicast, ReachesAllMembersAndNobodyElse) {
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(ibv_attach_mcast(member.qp(), &mgid, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(other.qp(), &mgid, 0), 0);
  for (End* end : {&sender, &member, &other, &stranger}) end->receive(7, 0, 4096);
  sender.fill(8192, 100, 3);
  Message one = message(1);
  one.at = 8192;
  ASSERT_EQ(sender.post(one), 0);
  ASSERT_TRUE(sender.next_is(1, IBV_WC_SUCCESS));
  for (End* end : {&member, &other}) {
    ibv_wc completion{};
    ASSERT_TRUE(end->next(completion));
    EXPECT_EQ(completion.byte_len, kGrh + 100);
    EXPECT_EQ(completion.src_qp, sender.number());
    EXPECT_TRUE(end->holds(kGrh, 100, 3));
    // The GRH names the group.
    EXPECT_EQ(std::memcmp(end->bytes() + 36, mgid.raw + 12, 4), 0);
  }
  EXPECT_TRUE(stranger.nothing_comes());
  EXPECT_TRUE(sender.nothing_comes());
}

TEST_F(Multicast, AMemberDoesNotHearItself) {
  ASSERT_EQ(ibv_attach_mcast(sender.qp(), &mgid, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(member.qp(), &mgid, 0), 0);
  sender.receive(7, 0, 4096);
  member.receive(7, 0, 4096);
  ASSERT_EQ(sender.post(message(1)), 0);
  ASSERT_TRUE(sender.next_is(1, IBV_WC_SUCCESS));
  EXPECT_TRUE(member.next_is(7, IBV_WC_SUCCESS));
  EXPECT_TRUE(sender.nothing_comes());
}

TEST_F(Multicast, AsManyMembersAsTheDeviceSays) {
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(device(), &limits), 0);
  std::vector<std::unique_ptr<End>> members;
  for (int i = 0; i <= limits.max_mcast_qp_attach; ++i) {
    members.push_back(std::make_unique<End>(IBV_QPT_UD));
    members.back()->ready_datagrams();
    const int expected = i < limits.max_mcast_qp_attach ? 0 : ENOMEM;
    ASSERT_EQ(ibv_attach_mcast(members.back()->qp(), &mgid, 0), expected) << i;
  }
  ASSERT_EQ(ibv_detach_mcast(members.front()->qp(), &mgid, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(members.back()->qp(), &mgid, 0), 0);
}

// The kernel joins a socket to 20 groups of IPv4, unless net.ipv4.igmp_max_memberships says otherwise; the
// sentence names it.
TEST_F(Multicast, MoreGroupsThanTheKernelJoins) {
  int joined = 0;
  int error = 0;
  std::vector<ibv_gid> groups;
  for (; error == 0 && joined < 1000; ++joined) {
    groups.push_back(
        group(("::ffff:239.7." + std::to_string(joined / 250) + "." + std::to_string(joined % 250)).c_str()));
    error = ibv_attach_mcast(member.qp(), &groups.back(), 0);
  }
  EXPECT_TRUE(error == ENOMEM || joined == 1000) << error;
  EXPECT_GE(joined, 10);
  if (error == 0) return;
  ASSERT_EQ(ibv_detach_mcast(member.qp(), &groups.front(), 0), 0);
  EXPECT_EQ(ibv_attach_mcast(member.qp(), &groups.back(), 0), 0);
}

TEST_F(Multicast, EndsWithDetach) {
  ASSERT_EQ(ibv_attach_mcast(member.qp(), &mgid, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(other.qp(), &mgid, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(member.qp(), &mgid, 0), EINVAL);
  ASSERT_EQ(ibv_detach_mcast(member.qp(), &mgid, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(member.qp(), &mgid, 0), EINVAL);
  member.receive(7, 0, 4096);
  other.receive(7, 0, 4096);
  ASSERT_EQ(sender.post(message(1)), 0);
  EXPECT_TRUE(other.next_is(7, IBV_WC_SUCCESS));
  EXPECT_TRUE(member.nothing_comes());
}

TEST_F(Multicast, IsForDatagramsAndGroupsOnly) {
  const End connected(IBV_QPT_UC);
  EXPECT_EQ(ibv_attach_mcast(connected.qp(), &mgid, 0), EINVAL);
  const ibv_gid no_group = group("::ffff:10.1.2.3");
  EXPECT_EQ(ibv_attach_mcast(member.qp(), &no_group, 0), EINVAL);
}

}  // namespace
}  // namespace verbena::unreliable
