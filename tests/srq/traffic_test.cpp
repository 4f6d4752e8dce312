// Many queue pairs, of this process and of others, on one shared receive queue.
#include <map>

#include "hub.hpp"

namespace verbena::srq {
namespace {

using rc::Buffer;
using rc::Host;
using rc::Queue;
using rc::send_of;
using rc::Side;

TEST(Traffic, WithinOneProcess) {
  Hub hub;
  Hub requester({.max_wr = 0});
  for (uint64_t i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    ibv_qp* target = hub.add_qp();
    ibv_qp* source = requester.add_qp();
    Hub::connect(hub, target, requester, source);
    for (const uint32_t length : {0u, 1u, 32u, 33u, 4096u, 8192u, 8193u, 1000003u}) {
      ASSERT_EQ(0, hub.post_shared(length + i, 0, 1 << 20));
      requester.fill(0, length, length);
      ASSERT_EQ(0, requester.send(source, 7, 0, length));
      ASSERT_TRUE(hub.next_is(length + i, IBV_WC_SUCCESS, target->qp_num)) << length;
      EXPECT_EQ(-1, hub.mismatch(0, length, length)) << length;
      ASSERT_TRUE(requester.next_is(7, IBV_WC_SUCCESS, source->qp_num));
    }
  }
}

// Every receive completes once, with the number of the queue pair whose message it holds.
TEST(Traffic, OfManyProcesses) {
  constexpr size_t kPeers = 4;
  constexpr uint64_t kEach = 200;
  constexpr uint32_t kReceive = 128 * 1024;
  constexpr uint64_t kReceives = 24;
  Hub hub;
  std::vector<std::unique_ptr<Side>> peers;
  std::vector<Buffer> buffers;
  std::map<uint32_t, size_t> by_qpn;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<Side>(Host::helper()));
    ibv_qp* qp = hub.add_qp();
    hub.connect(qp, *peers[i]);
    by_qpn[qp->qp_num] = i;
    buffers.push_back(peers[i]->add_buffer(kReceive));
    peers[i]->fill(buffers[i], i);
  }
  const auto length_of = [](size_t peer, uint64_t number) -> uint32_t {
    return number % 7 == 6 ? 100'000 : static_cast<uint32_t>(1 + 17 * peer + number % 1000);
  };
  for (uint64_t i = 0; i < kReceives; ++i) ASSERT_EQ(0, hub.post_shared(i, i * kReceive, kReceive));
  std::vector<uint64_t> sent(kPeers);
  std::vector<uint64_t> confirmed(kPeers);
  std::vector<uint64_t> received(kPeers);
  for (uint64_t total = 0; total < kPeers * kEach;) {
    for (size_t i = 0; i < kPeers; ++i) {
      if (sent[i] < kEach && sent[i] - confirmed[i] < 32) {
        ASSERT_EQ(0, peers[i]->post_send(send_of(sent[i], {buffers[i].piece(0, length_of(i, sent[i]))})));
        ++sent[i];
      }
      for (const ibv_wc& done : {peers[i]->next(Queue::kSend, rc::kNow)}) {
        if (done.status == rc::kNone) continue;
        ASSERT_EQ(IBV_WC_SUCCESS, done.status);
        ASSERT_EQ(confirmed[i]++, done.wr_id);
      }
    }
    for (ibv_wc got = hub.next(rc::kNow); got.status != rc::kNone; got = hub.next(rc::kNow)) {
      ASSERT_EQ(IBV_WC_SUCCESS, got.status);
      ASSERT_TRUE(by_qpn.contains(got.qp_num));
      const size_t peer = by_qpn[got.qp_num];
      ASSERT_EQ(length_of(peer, received[peer]), got.byte_len) << "in the order of sending";
      ASSERT_EQ(-1, hub.mismatch(got.wr_id * kReceive, got.byte_len, peer));
      ++received[peer];
      ++total;
      ASSERT_EQ(0, hub.post_shared(got.wr_id, got.wr_id * kReceive, kReceive));
    }
  }
  for (size_t i = 0; i < kPeers; ++i) EXPECT_EQ(kEach, received[i]);
  EXPECT_TRUE(hub.nothing_comes());
}

TEST(Traffic, WaitsWhileNothingIsPosted) {
  Hub hub;
  Side peer(Host::helper());
  ibv_qp* qp = hub.add_qp();
  hub.connect(qp, peer);
  const Buffer buffer = peer.add_buffer(4096);
  ASSERT_EQ(0, peer.post_sends({send_of(1, {buffer.piece(0, 64)}), send_of(2, {buffer.all()})}).error);
  EXPECT_EQ(rc::kNone, peer.next(Queue::kSend, rc::kMoment).status);
  EXPECT_TRUE(hub.nothing_comes());
  for (const uint64_t wr_id : {1, 2}) {
    ASSERT_EQ(0, hub.post_shared(wr_id, 0, 4096));
    EXPECT_TRUE(hub.next_is(wr_id, IBV_WC_SUCCESS, qp->qp_num));
    EXPECT_TRUE(rc::next_is(peer, Queue::kSend, wr_id, IBV_WC_SUCCESS));
  }
}

TEST(Traffic, GivesUpWhenNothingIsEverPosted) {
  Hub hub;
  Side peer(Host::helper());
  ibv_qp* qp = hub.add_qp();
  hub.connect(qp, peer, {.rnr_retry = 2, .min_rnr_timer = 12});
  ASSERT_EQ(0, peer.post_send(send_of(1, {})));
  EXPECT_TRUE(rc::next_is(peer, Queue::kSend, 1, IBV_WC_RNR_RETRY_EXC_ERR));
  EXPECT_EQ(IBV_QPS_RTS, Hub::state_of(qp));
}

TEST(Traffic, AWriteWithImmediateTakesOne) {
  Hub hub;
  Side peer(Host::helper());
  ibv_qp* qp = hub.add_qp();
  hub.connect(qp, peer);
  const Buffer buffer = peer.add_buffer(100'000);
  peer.fill(buffer, 3);
  ASSERT_EQ(0, hub.post_shared(11, 0, 0));
  rc::SendOrder order{.wr_id = 1,
                      .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                      .imm = 0x12345678,
                      .remote_address = reinterpret_cast<uint64_t>(hub.mr()->addr),
                      .rkey = hub.mr()->rkey,
                      .pieces = {buffer.all()}};
  ASSERT_EQ(0, peer.post_send(order));
  const ibv_wc got = hub.next();
  EXPECT_EQ(IBV_WC_SUCCESS, got.status);
  EXPECT_EQ(IBV_WC_RECV_RDMA_WITH_IMM, got.opcode);
  EXPECT_EQ(11u, got.wr_id);
  EXPECT_EQ(qp->qp_num, got.qp_num);
  EXPECT_EQ(0x12345678u, got.imm_data);
  EXPECT_EQ(-1, hub.mismatch(0, 100'000, 3));
}

// More messages than receives, from two sides at once, into a queue that is refilled one by one.
TEST(Traffic, TwoCompeteForEachReceive) {
  Hub hub;
  Hub requester({.max_wr = 0});
  ibv_qp* targets[2];
  ibv_qp* sources[2];
  for (int i = 0; i < 2; ++i) {
    targets[i] = hub.add_qp();
    sources[i] = requester.add_qp();
    Hub::connect(hub, targets[i], requester, sources[i]);
    for (uint64_t n = 0; n < 30; ++n) ASSERT_EQ(0, requester.send(sources[i], n, 0, 64));
  }
  std::map<uint32_t, int> received;
  for (uint64_t n = 0; n < 60; ++n) {
    ASSERT_EQ(0, hub.post_shared(n, 0, 64));
    const ibv_wc got = hub.next();
    ASSERT_EQ(IBV_WC_SUCCESS, got.status);
    ASSERT_EQ(n, got.wr_id);
    ++received[got.qp_num];
  }
  EXPECT_EQ(30, received[targets[0]->qp_num]);
  EXPECT_EQ(30, received[targets[1]->qp_num]);
}

}  // namespace
}  // namespace verbena::srq
