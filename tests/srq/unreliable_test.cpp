// Shared receive queues under UC and UD.
#include "hub.hpp"

namespace verbena::srq {
namespace {

// The owner of a shared queue takes back what was given up when it comes to it; until then messages are lost.
template <typename Send>
ibv_wc send_until_received(Hub& hub, Send send) {
  ibv_wc got{};
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(0, send());
    got = hub.next(Wait(50));
    if (got.status != rc::kNone) break;
  }
  return got;
}

TEST(Unreliable, Connections) {
  Hub hub({.type = IBV_QPT_UC});
  Hub requester({.type = IBV_QPT_UC, .max_wr = 0});
  ibv_qp* targets[3];
  ibv_qp* sources[3];
  for (int i = 0; i < 3; ++i) {
    targets[i] = hub.add_qp();
    sources[i] = requester.add_qp();
    Hub::connect(hub, targets[i], requester, sources[i]);
  }
  uint64_t wr_id = 0;
  for (const uint32_t length : {0u, 64u, 1024u, 1025u, 100'000u})
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(0, hub.post_shared(++wr_id, 0, 200'000));
      requester.fill(0, length, wr_id);
      ASSERT_EQ(0, requester.send(sources[i], 1, 0, length));
      ASSERT_TRUE(hub.next_is(wr_id, IBV_WC_SUCCESS, targets[i]->qp_num));
      EXPECT_EQ(-1, hub.mismatch(0, length, wr_id));
      ASSERT_TRUE(requester.next_is(1, IBV_WC_SUCCESS, sources[i]->qp_num));
    }
  // Without a receive a message is lost, and the next one isn't.
  ASSERT_EQ(0, requester.send(sources[0], 2, 0, 64));
  ASSERT_TRUE(requester.next_is(2, IBV_WC_SUCCESS, sources[0]->qp_num));
  EXPECT_TRUE(hub.nothing_comes());
  ASSERT_EQ(0, hub.post_shared(99, 0, 64));
  EXPECT_TRUE(hub.nothing_comes());
  ASSERT_EQ(0, requester.send(sources[1], 3, 0, 64));
  EXPECT_TRUE(hub.next_is(99, IBV_WC_SUCCESS, targets[1]->qp_num));
}

// A message that is dropped leaves its receive to others, though no further one comes on its connection.
TEST(Unreliable, DroppedMessagesKeepNoReceive) {
  Hub hub({.type = IBV_QPT_UC});
  Hub requester({.type = IBV_QPT_UC, .max_wr = 0});
  ibv_qp* targets[2];
  ibv_qp* sources[2];
  for (int i = 0; i < 2; ++i) {
    targets[i] = hub.add_qp();
    sources[i] = requester.add_qp();
    Hub::connect(hub, targets[i], requester, sources[i]);
  }
  uint64_t wr_id = 0;
  for (const uint32_t length : {101u, 3000u, 100'000u}) {
    SCOPED_TRACE(length);
    ASSERT_EQ(0, hub.post_shared(++wr_id, 0, 100));
    ASSERT_EQ(0, requester.send(sources[0], 1, 0, length));
    ASSERT_TRUE(requester.next_is(1, IBV_WC_SUCCESS, sources[0]->qp_num));
    EXPECT_TRUE(hub.nothing_comes()) << "it is too long";
    const ibv_wc got = send_until_received(hub, [&] { return requester.send(sources[1], 2, 0, 64); });
    ASSERT_EQ(IBV_WC_SUCCESS, got.status);
    EXPECT_EQ(wr_id, got.wr_id);
    EXPECT_EQ(targets[1]->qp_num, got.qp_num);
    while (requester.next(rc::kMoment).status == IBV_WC_SUCCESS) continue;
    EXPECT_TRUE(hub.nothing_comes());
  }
}

TEST(Unreliable, DroppedDatagramsKeepNoReceive) {
  Hub hub({.type = IBV_QPT_UD});
  Hub requester({.type = IBV_QPT_UD, .max_wr = 0});
  ibv_qp* targets[2] = {hub.add_qp(), hub.add_qp()};
  ibv_qp* source = requester.add_qp();
  Hub::connect(hub, targets[0], requester, source);
  Hub::make_ready(hub, targets[1]);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = hub.gid();
  attr.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(requester.pd(), &attr);
  ASSERT_NE(nullptr, ah);
  ASSERT_EQ(0, hub.post_shared(5, 0, 140));
  ASSERT_EQ(0, requester.send(source, 1, 0, 101, ah, targets[0]->qp_num));
  ASSERT_TRUE(requester.next_is(1, IBV_WC_SUCCESS, source->qp_num));
  EXPECT_TRUE(hub.nothing_comes()) << "it is too long, with its GRH";
  const ibv_wc got =
      send_until_received(hub, [&] { return requester.send(source, 2, 0, 100, ah, targets[1]->qp_num); });
  ASSERT_EQ(IBV_WC_SUCCESS, got.status);
  EXPECT_EQ(5u, got.wr_id);
  EXPECT_EQ(targets[1]->qp_num, got.qp_num);
  EXPECT_EQ(0, ibv_destroy_ah(ah));
}

TEST(Unreliable, Datagrams) {
  Hub hub({.type = IBV_QPT_UD});
  Hub requester({.type = IBV_QPT_UD, .max_wr = 0});
  ibv_qp* targets[3] = {hub.add_qp(), hub.add_qp(), hub.add_qp()};
  ibv_qp* source = requester.add_qp();
  Hub::connect(hub, targets[0], requester, source);
  for (int i = 1; i < 3; ++i) Hub::make_ready(hub, targets[i]);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = hub.gid();
  attr.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(requester.pd(), &attr);
  ASSERT_NE(nullptr, ah);
  uint64_t wr_id = 0;
  for (int round = 0; round < 5; ++round)
    for (ibv_qp* target : targets) {
      const uint32_t length = 10 + 100 * static_cast<uint32_t>(round);
      ASSERT_EQ(0, hub.post_shared(++wr_id, 0, 2048));
      requester.fill(0, length, wr_id);
      ASSERT_EQ(0, requester.send(source, 1, 0, length, ah, target->qp_num));
      const ibv_wc got = hub.next();
      ASSERT_EQ(IBV_WC_SUCCESS, got.status);
      EXPECT_EQ(wr_id, got.wr_id);
      EXPECT_EQ(target->qp_num, got.qp_num);
      EXPECT_EQ(source->qp_num, got.src_qp);
      EXPECT_EQ(40 + length, got.byte_len);
      EXPECT_EQ(-1, hub.mismatch(40, length, wr_id));
      ASSERT_TRUE(requester.next_is(1, IBV_WC_SUCCESS, source->qp_num));
    }
  EXPECT_EQ(0, ibv_destroy_ah(ah));
}

}  // namespace
}  // namespace verbena::srq
