// Ends of connections, and what they do to the queue pair.
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

struct PostedReceive {
  explicit PostedReceive(rdma_cm_id* id) : region(rdma_reg_msgs(id, buffer, sizeof buffer)) {
    must(rdma_post_recv(id, this, buffer, sizeof buffer, region), "rdma_post_recv");
  }
  ~PostedReceive() { rdma_dereg_mr(region); }
  char buffer[16]{};
  ibv_mr* region;
};

TEST(Disconnect, ThePeersDoesntFlush) {
  Pair pair;
  const PostedReceive receive(pair.passive.get());
  ASSERT_EQ(rdma_disconnect(pair.active.get()), 0);
  ASSERT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(state_of(pair.passive->qp), IBV_QPS_RTS);
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(pair.passive->recv_cq, 1, &completion), 0);
  // It is the program's own disconnect that does.
  ASSERT_EQ(rdma_disconnect(pair.passive.get()), 0);
  EXPECT_EQ(state_of(pair.passive->qp), IBV_QPS_ERR);
  ASSERT_EQ(rdma_get_recv_comp(pair.passive.get(), &completion), 1);
  EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Disconnect, BothAtOnce) {
  Pair pair;
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_EQ(rdma_disconnect(pair.passive.get()), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);  // and once more does no harm
}

TEST(Disconnect, ByThePassiveSide) {
  Pair pair;
  EXPECT_EQ(rdma_disconnect(pair.passive.get()), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
}

TEST(Disconnect, DestroyingAnIdDisconnects) {
  Pair pair;
  pair.active.reset();
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
}

TEST(Disconnect, AConnectionOutlivesItsListener) {
  Pair pair;
  pair.listener.reset();
  exchange(pair.active.get(), pair.passive.get());
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
}

TEST(Disconnect, ARequestThatWasHandedOutOutlivesItsListener) {
  Pair pair(Pair::Unanswered{});
  pair.listener.reset();
  give_queue_pair(pair.passive.get());
  ASSERT_EQ(rdma_accept(pair.passive.get(), nullptr), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
}

// A synchronous disconnect waits until the other side has heard of it, or its event is there already.
TEST(Disconnect, SynchronouslyOnceThePeerIsGone) {
  Pair pair;
  ASSERT_EQ(rdma_migrate_id(pair.passive.get(), nullptr), 0);
  ASSERT_EQ(rdma_disconnect(pair.active.get()), 0);
  ASSERT_TRUE(readable(pair.passive->channel->fd, kLong));
  EXPECT_EQ(rdma_disconnect(pair.passive.get()), 0);
  ASSERT_NE(pair.passive->event, nullptr);
  EXPECT_EQ(pair.passive->event->event, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(pair.passive.get()), 0);
}

TEST(Disconnect, AThousandConnectionsInARow) {
  Pair first;
  for (int i = 0; i < 1000; ++i) {
    // A pair that opens and closes: through one listener, as servers do.
    const auto client = make_id(first.active_channel.get());
    Address there("127.0.0.1", ntohs(rdma_get_src_port(first.listener.get())));
    must(rdma_resolve_addr(client.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
    ASSERT_TRUE(next_is(first.active_channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
    must(rdma_resolve_route(client.get(), 2000), "rdma_resolve_route");
    ASSERT_TRUE(next_is(first.active_channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
    give_queue_pair(client.get());
    must(rdma_connect(client.get(), nullptr), "rdma_connect");
    const Event request = next(first.passive_channel.get());
    ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST) << rdma_event_str(request.type);
    const Id served(request.id);
    give_queue_pair(served.get());
    must(rdma_accept(served.get(), nullptr), "rdma_accept");
    ASSERT_TRUE(next_is(first.active_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
    ASSERT_TRUE(next_is(first.passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
    must(rdma_disconnect(client.get()), "rdma_disconnect");
    ASSERT_TRUE(next_is(first.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
    must(rdma_disconnect(served.get()), "rdma_disconnect");
    ASSERT_TRUE(next_is(first.active_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  }
}

}  // namespace
}  // namespace verbena::cm_test
