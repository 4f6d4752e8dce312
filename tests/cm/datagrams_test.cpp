// Datagrams: a service is asked for its queue pair, groups are joined.
#include <fstream>
#include <sstream>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

void give_datagram_queue_pair(rdma_cm_id* id) {
  auto attributes = queue_pair_attributes();
  attributes.qp_type = IBV_QPT_UD;
  must(rdma_create_qp(id, nullptr, &attributes), "rdma_create_qp");
}

rdma_cm_event* take(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  must(readable(channel->fd, kLong) ? rdma_get_cm_event(channel, &event) : -1, "rdma_get_cm_event");
  return event;
}

struct Service {
  Channel serving = make_channel();
  Channel asking = make_channel();
  Id listener = make_id(serving.get(), RDMA_PS_UDP);
  Id client = make_id(asking.get(), RDMA_PS_UDP);
  Id served;

  // Asked, and the question is there.
  Service() {
    Address here("127.0.0.1");
    must(rdma_bind_addr(listener.get(), here.get()), "rdma_bind_addr");
    must(rdma_listen(listener.get(), 4), "rdma_listen");
    Address there("127.0.0.1", ntohs(rdma_get_src_port(listener.get())));
    must(rdma_resolve_addr(client.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
    EXPECT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
    must(rdma_resolve_route(client.get(), 2000), "rdma_resolve_route");
    EXPECT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
    give_datagram_queue_pair(client.get());
    const std::string question = "who are you";
    auto wanted = parameters(question);
    must(rdma_connect(client.get(), &wanted), "rdma_connect");
    rdma_cm_event* request = take(serving.get());
    EXPECT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_STREQ(static_cast<const char*>(request->param.ud.private_data), "who are you");
    served.reset(request->id);
    must(rdma_ack_cm_event(request), "rdma_ack_cm_event");
  }
};

TEST(Datagrams, TheAnswerTellsWhereToSend) {
  Service service;
  EXPECT_EQ(service.served->qp_type, IBV_QPT_UD);
  give_datagram_queue_pair(service.served.get());
  EXPECT_EQ(state_of(service.served->qp), IBV_QPS_RTS);
  char received[64]{};
  ibv_mr* sink = rdma_reg_msgs(service.served.get(), received, sizeof received);
  must(rdma_post_recv(service.served.get(), nullptr, received, sizeof received, sink), "rdma_post_recv");
  ASSERT_EQ(rdma_accept(service.served.get(), nullptr), 0);

  rdma_cm_event* established = take(service.asking.get());
  ASSERT_EQ(established->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established->param.ud.qp_num, service.served->qp->qp_num);
  EXPECT_EQ(established->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  ibv_ah* there = ibv_create_ah(service.client->pd, &established->param.ud.ah_attr);
  ASSERT_NE(there, nullptr);
  char sent[] = "a datagram";
  ibv_mr* source = rdma_reg_msgs(service.client.get(), sent, sizeof sent);
  ASSERT_EQ(rdma_post_ud_send(service.client.get(), nullptr, sent, sizeof sent, source, 0, there,
                              established->param.ud.qp_num),
            0);
  ibv_wc completion{};
  ASSERT_EQ(rdma_get_recv_comp(service.served.get(), &completion), 1);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_STREQ(received + 40, "a datagram");  // behind the GRH
  ASSERT_EQ(rdma_get_send_comp(service.client.get(), &completion), 1);
  EXPECT_EQ(rdma_ack_cm_event(established), 0);
  EXPECT_EQ(ibv_destroy_ah(there), 0);
  EXPECT_EQ(rdma_dereg_mr(source), 0);
  EXPECT_EQ(rdma_dereg_mr(sink), 0);
}

TEST(Datagrams, AServiceThatRefuses) {
  Service service;
  ASSERT_EQ(rdma_reject(service.served.get(), nullptr, 0), 0);
  const Event refused = next(service.asking.get());
  EXPECT_TRUE(refused.type == RDMA_CM_EVENT_UNREACHABLE || refused.type == RDMA_CM_EVENT_REJECTED)
      << rdma_event_str(refused.type);
  EXPECT_NE(refused.status, 0);
}

// Whether some socket of this namespace has joined 239.7.7.7.
bool group_joined() {
  std::ifstream groups("/proc/net/igmp");
  std::stringstream text;
  text << groups.rdbuf();
  return text.str().find("070707EF") != std::string::npos;
}

TEST(Datagrams, AJoinedGroupTellsItsAddress) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get(), RDMA_PS_UDP);
  Address here("127.0.0.1");
  ASSERT_EQ(rdma_bind_addr(id.get(), here.get()), 0);
  Address group("239.7.7.7");
  int context = 0;
  ASSERT_FALSE(group_joined());
  ASSERT_EQ(rdma_join_multicast(id.get(), group.get(), &context), 0);
  rdma_cm_event* joined = take(channel.get());
  ASSERT_EQ(joined->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(joined->status, 0);
  const rdma_ud_param& told = joined->param.ud;
  EXPECT_EQ(told.private_data, &context);
  EXPECT_EQ(told.qp_num, 0xffffffu);
  EXPECT_EQ(told.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  const uint8_t mgid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 7, 7};
  EXPECT_EQ(std::memcmp(told.ah_attr.grh.dgid.raw, mgid, sizeof mgid), 0);
  EXPECT_EQ(told.ah_attr.is_global, 1);
  EXPECT_EQ(told.ah_attr.port_num, 1);
  EXPECT_EQ(rdma_ack_cm_event(joined), 0);
  EXPECT_TRUE(group_joined());
  EXPECT_EQ(rdma_leave_multicast(id.get(), group.get()), 0);
  EXPECT_FALSE(group_joined());
  EXPECT_EQ(rdma_leave_multicast(id.get(), group.get()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST(Datagrams, TwoIdsShareAGroup) {
  const auto channel = make_channel();
  const auto first = make_id(channel.get(), RDMA_PS_UDP);
  const auto second = make_id(channel.get(), RDMA_PS_UDP);
  Address here("127.0.0.1");
  Address group("239.7.7.7");
  for (rdma_cm_id* id : {first.get(), second.get()}) {
    ASSERT_EQ(rdma_bind_addr(id, here.get()), 0);
    ASSERT_EQ(rdma_join_multicast(id, group.get(), nullptr), 0);
    EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN));
  }
  EXPECT_EQ(rdma_leave_multicast(first.get(), group.get()), 0);
  EXPECT_TRUE(group_joined());
  EXPECT_EQ(rdma_leave_multicast(second.get(), group.get()), 0);
  EXPECT_FALSE(group_joined());
}

TEST(Datagrams, WhoOnlySendsDoesntJoin) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get(), RDMA_PS_UDP);
  Address here("127.0.0.1");
  Address group("239.7.7.7");
  ASSERT_EQ(rdma_bind_addr(id.get(), here.get()), 0);
  rdma_cm_join_mc_attr_ex wanted{};
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  wanted.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  wanted.addr = group.get();
  ASSERT_EQ(rdma_join_multicast_ex(id.get(), &wanted, nullptr), 0);
  EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN));
  EXPECT_FALSE(group_joined());
  // No group, and an id of connections, are refused.
  EXPECT_EQ(rdma_join_multicast(id.get(), here.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::cm_test
