// A connection's life, asynchronous and synchronous, and what ids show of it.
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

class Life : public testing::TestWithParam<const char*> {};

TEST_P(Life, ConnectsTalksAndEnds) {
  Pair pair(GetParam());
  EXPECT_EQ(state_of(pair.active->qp), IBV_QPS_RTS);
  EXPECT_EQ(state_of(pair.passive->qp), IBV_QPS_RTS);
  exchange(pair.active.get(), pair.passive.get());
  ASSERT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_EQ(state_of(pair.active->qp), IBV_QPS_ERR);
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  ASSERT_EQ(rdma_disconnect(pair.passive.get()), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
}

TEST_P(Life, AddressesAndPortsAreEachOthers) {
  const Pair pair(GetParam());
  EXPECT_EQ(rdma_get_src_port(pair.active.get()), rdma_get_dst_port(pair.passive.get()));
  EXPECT_EQ(rdma_get_dst_port(pair.active.get()), rdma_get_src_port(pair.passive.get()));
  EXPECT_NE(rdma_get_src_port(pair.active.get()), 0);
  EXPECT_EQ(rdma_get_src_port(pair.passive.get()), rdma_get_src_port(pair.listener.get()));
  Address expected(GetParam());
  EXPECT_EQ(rdma_get_local_addr(pair.passive.get())->sa_family, expected.get()->sa_family);
  EXPECT_EQ(rdma_get_peer_addr(pair.passive.get())->sa_family, expected.get()->sa_family);
}

INSTANTIATE_TEST_SUITE_P(Cm, Life, testing::Values("127.0.0.1", "::1"),
                         [](const auto& row) { return row.index == 0 ? "IPv4" : "IPv6"; });

TEST(LifeOnce, ARequestShowsWhatThePeerWants) {
  const Pair pair(Pair::Unanswered{}, "127.0.0.1", "count=7");
  EXPECT_EQ(pair.request.listener, pair.listener.get());
  EXPECT_EQ(pair.request.data, "count=7");
  EXPECT_EQ(pair.request.conn.private_data_len, 56);  // what a REQ has room for, as other stacks show it
  // What the peer initiates we answer.
  EXPECT_EQ(pair.request.conn.responder_resources, 2);
  EXPECT_EQ(pair.request.conn.initiator_depth, 4);
  EXPECT_EQ(pair.request.conn.qp_num, pair.active->qp->qp_num);
  EXPECT_NE(pair.passive->verbs, nullptr);
  EXPECT_EQ(pair.passive->port_num, 1);
  EXPECT_EQ(pair.passive->ps, RDMA_PS_TCP);
  EXPECT_EQ(pair.passive->channel, pair.passive_channel.get());
}

TEST(LifeOnce, TheMostMeansTheLesserOfBothSides) {
  Pair pair(Pair::Unanswered{});
  give_queue_pair(pair.passive.get());
  auto wanted = parameters();
  wanted.responder_resources = RDMA_MAX_RESP_RES;
  wanted.initiator_depth = RDMA_MAX_INIT_DEPTH;
  ASSERT_EQ(rdma_accept(pair.passive.get(), &wanted), 0);
  const Event established = next(pair.active_channel.get());
  ASSERT_EQ(established.type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.conn.responder_resources, 4);
  EXPECT_EQ(established.conn.initiator_depth, 2);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(pair.passive->qp, &attributes, IBV_QP_MAX_QP_RD_ATOMIC, &init), 0);
  EXPECT_EQ(attributes.max_rd_atomic, 4);
  EXPECT_EQ(attributes.max_dest_rd_atomic, 2);
}

TEST(LifeOnce, AQueuePairOfTheProgramsIsEstablishedByTheProgram) {
  Pair pair(Pair::Unanswered{});
  // The passive id has no queue pair: the program makes its own and names it.
  auto attributes = queue_pair_attributes();
  ibv_cq* queue = ibv_create_cq(pair.passive->verbs, 16, nullptr, nullptr, 0);
  attributes.send_cq = attributes.recv_cq = queue;
  ibv_qp* own = ibv_create_qp(pair.passive->pd, &attributes);
  ASSERT_NE(own, nullptr);
  for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr wanted{};
    wanted.qp_state = state;
    int mask = 0;
    ASSERT_EQ(rdma_init_qp_attr(pair.passive.get(), &wanted, &mask), 0);
    ASSERT_EQ(ibv_modify_qp(own, &wanted, mask), 0);
  }
  auto wanted = parameters();
  wanted.qp_num = own->qp_num;
  ASSERT_EQ(rdma_accept(pair.passive.get(), &wanted), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_EQ(ibv_destroy_qp(own), 0);
  EXPECT_EQ(ibv_destroy_cq(queue), 0);
}

// Both ends without a channel of the program's, by endpoints.
TEST(LifeOnce, EndpointsConnectSynchronously) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found), 0);
  rdma_cm_id* listener = nullptr;
  auto attributes = queue_pair_attributes();
  ASSERT_EQ(rdma_create_ep(&listener, found, nullptr, &attributes), 0);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_listen(listener, 0), 0);

  rdma_cm_id* passive = nullptr;
  std::thread server([&] {
    must(rdma_get_request(listener, &passive), "rdma_get_request");
    EXPECT_NE(passive->qp, nullptr);
    EXPECT_NE(passive->event, nullptr);
    EXPECT_NE(passive->channel, listener->channel);  // its own
    must(rdma_accept(passive, nullptr), "rdma_accept");
  });
  hints.ai_flags = 0;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found), 0);
  rdma_cm_id* active = nullptr;
  attributes = queue_pair_attributes();
  ASSERT_EQ(rdma_create_ep(&active, found, nullptr, &attributes), 0);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  server.join();
  EXPECT_EQ(active->event->event, RDMA_CM_EVENT_ESTABLISHED);
  exchange(active, passive);
  EXPECT_EQ(rdma_disconnect(active), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(passive->channel, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_EQ(rdma_disconnect(passive), 0);
  rdma_destroy_ep(active);
  rdma_destroy_ep(passive);
  rdma_destroy_ep(listener);
}

TEST(LifeOnce, AListenerOnTheWildcardServesSeveralClients) {
  const auto serving = make_channel();
  const auto asking = make_channel();
  const auto listener = make_id(serving.get());
  Address any("0.0.0.0");
  ASSERT_EQ(rdma_bind_addr(listener.get(), any.get()), 0);
  EXPECT_EQ(listener->verbs, nullptr);  // the wildcard is no device's
  ASSERT_EQ(rdma_listen(listener.get(), 16), 0);
  Address there("127.0.0.1", ntohs(rdma_get_src_port(listener.get())));
  std::vector<Id> clients;
  std::vector<Id> served;
  for (int i = 0; i < 8; ++i) {
    auto& client = clients.emplace_back(make_id(asking.get()));
    ASSERT_EQ(rdma_resolve_addr(client.get(), nullptr, there.get(), 2000), 0);
    ASSERT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
    ASSERT_EQ(rdma_resolve_route(client.get(), 2000), 0);
    ASSERT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
    give_queue_pair(client.get());
    const std::string number = std::to_string(i);
    auto wanted = parameters(number);
    ASSERT_EQ(rdma_connect(client.get(), &wanted), 0);
  }
  for (int i = 0; i < 8; ++i) {
    const Event request = next(serving.get());
    ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.data, std::to_string(i));
    auto& child = served.emplace_back(request.id);
    give_queue_pair(child.get());
    ASSERT_EQ(rdma_accept(child.get(), nullptr), 0);
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ESTABLISHED));
    EXPECT_TRUE(next_is(serving.get(), RDMA_CM_EVENT_ESTABLISHED));
  }
  for (size_t i = 0; i < clients.size(); ++i) exchange(clients[i].get(), served[i].get());
}

}  // namespace
}  // namespace verbena::cm_test
