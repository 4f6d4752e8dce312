// Datagrams: address handles, keys, the GRH, one queue pair with many peers.
#include <arpa/inet.h>

#include <array>
#include <cstring>

#include "end.hpp"

namespace verbena::unreliable {
namespace {

constexpr uint32_t kGrh = 40;

struct Ud : testing::Test {
  Ud() {
    a.ready_datagrams();
    b.ready_datagrams();
    to_b = a.handle_to(b);
  }
  ~Ud() override { EXPECT_EQ(ibv_destroy_ah(to_b), 0); }
  [[nodiscard]] Message to(uint64_t wr_id, uint32_t length) const {
    return {.wr_id = wr_id, .length = length, .ah = to_b, .target = b.number()};
  }
  End a{IBV_QPT_UD};
  End b{IBV_QPT_UD};
  ibv_ah* to_b = nullptr;
};

TEST_F(Ud, AMessageComesBehindItsGrh) {
  uint8_t seed = 1;
  for (const uint32_t length : {0u, 1u, 32u, 64u, 1000u, 1024u}) {
    b.receive(length, 0, 4096);
    a.fill(0, length, ++seed);
    Message message = to(length, length);
    message.opcode = IBV_WR_SEND_WITH_IMM;
    message.imm = htonl(length);
    ASSERT_EQ(a.post(message), 0);
    ASSERT_TRUE(a.next_is(length, IBV_WC_SUCCESS));
    ibv_wc completion{};
    ASSERT_TRUE(b.next(completion)) << length;
    EXPECT_EQ(completion.byte_len, kGrh + length);
    EXPECT_EQ(completion.src_qp, a.number());
    EXPECT_EQ(completion.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    EXPECT_EQ(completion.sl, 2) << "an IPv4 header, by an adapter's count";
    EXPECT_EQ(ntohl(completion.imm_data), length);
    EXPECT_TRUE(b.holds(kGrh, length, seed));
  }
}

// Programs answer by what the completion and the GRH say.
void answer_by_completion(const std::string& address) {
  const int index = gid_index(address);
  ASSERT_GE(index, 0) << address;
  End a(IBV_QPT_UD, index);
  End b(IBV_QPT_UD, index);
  a.ready_datagrams();
  b.ready_datagrams();
  ibv_ah* to_b = a.handle_to(b);
  a.receive(1, 4096, 4096);
  b.receive(1, 0, 4096);
  ASSERT_EQ(a.post({.wr_id = 1, .length = 10, .ah = to_b, .target = b.number()}), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  ibv_wc completion{};
  ASSERT_TRUE(b.next(completion));
  auto* grh = reinterpret_cast<ibv_grh*>(b.bytes());
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(device(), 1, &completion, grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, index);
  EXPECT_EQ(std::memcmp(&attr.grh.dgid, &a.gid(), sizeof(ibv_gid)), 0);
  ibv_ah* back = ibv_create_ah_from_wc(b.pd(), &completion, grh, 1);
  ASSERT_NE(back, nullptr);
  b.fill(0, 20, 4);
  ASSERT_EQ(b.post({.wr_id = 2, .length = 20, .ah = back, .target = completion.src_qp}), 0);
  EXPECT_EQ(ibv_destroy_ah(back), 0);  // right after the post, as programs do
  ASSERT_TRUE(b.next_is(2, IBV_WC_SUCCESS));
  ASSERT_TRUE(a.next(completion));
  EXPECT_EQ(completion.src_qp, b.number());
  EXPECT_TRUE(a.holds(4096 + kGrh, 20, 4));
  EXPECT_EQ(ibv_destroy_ah(to_b), 0);
}
TEST(UdAnswers, OverIpv4) { answer_by_completion("::ffff:127.0.0.1"); }
TEST(UdAnswers, OverIpv6) { answer_by_completion("::1"); }

TEST_F(Ud, AnotherQkeyIsDropped) {
  b.receive(1, 0, 4096);
  Message message = to(1, 10);
  message.qkey = kQkey + 1;
  ASSERT_EQ(a.post(message), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.nothing_comes());
  message.qkey = 0x80000000;  // the sender's own
  ASSERT_EQ(a.post(message), 0);
  EXPECT_TRUE(b.next_is(1, IBV_WC_SUCCESS));
}

TEST_F(Ud, WithoutRoomADatagramIsLostAndTheReceiveStays) {
  ASSERT_EQ(a.post(to(1, 10)), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.nothing_comes());
  b.receive(5, 0, kGrh + 99);
  ASSERT_EQ(a.post(to(2, 100)), 0);
  ASSERT_TRUE(a.next_is(2, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.nothing_comes());
  ASSERT_EQ(a.post(to(3, 99)), 0);
  EXPECT_TRUE(b.next_is(5, IBV_WC_SUCCESS));
}

TEST_F(Ud, LongerThanTheMtuFailsAndStopsTheSendQueueOnly) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(device(), 1, &port), 0);
  const uint32_t mtu = 128u << port.active_mtu;
  b.receive(1, 0, 8192);
  ASSERT_EQ(a.post(to(1, mtu + 1)), 0);
  ASSERT_EQ(a.post(to(2, 8)), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_LOC_LEN_ERR));
  ASSERT_TRUE(a.next_is(2, IBV_WC_WR_FLUSH_ERR));
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(a.post(to(3, mtu)), 0);
  ASSERT_TRUE(a.next_is(3, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.next_is(1, IBV_WC_SUCCESS));
}

TEST_F(Ud, RefusesWhatTheServiceDoesNotHave) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
                                     IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Message message = to(1, 8);
    message.opcode = opcode;
    EXPECT_EQ(a.post(message), EINVAL);
  }
}

TEST_F(Ud, AHandleIsOfItsDomain) {
  ibv_ah* of_b = b.handle_to(b);
  Message message = to(1, 8);
  message.ah = of_b;
  EXPECT_EQ(a.post(message), EINVAL);
  message.ah = nullptr;
  EXPECT_EQ(a.post(message), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(b.pd()), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(of_b), 0);
}

TEST_F(Ud, AHandleNeedsAGidOfOurs) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.sgid_index = 200;
  EXPECT_EQ(ibv_create_ah(a.pd(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.grh.sgid_index = 0;
  attr.port_num = 9;
  EXPECT_EQ(ibv_create_ah(a.pd(), &attr), nullptr);
  attr.port_num = 1;
  attr.is_global = 0;
  EXPECT_EQ(ibv_create_ah(a.pd(), &attr), nullptr);
}

TEST_F(Ud, OneQueuePairServesAHundredPeers) {
  std::vector<std::unique_ptr<End>> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(std::make_unique<End>(IBV_QPT_UD));
    peers.back()->ready_datagrams();
    peers.back()->receive(1, 0, 256);
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    a.fill(0, 64, static_cast<uint8_t>(i));
    Message message = to(i, 64);
    message.flags |= IBV_SEND_INLINE;
    message.target = peers[i]->number();
    ASSERT_EQ(a.post(message), 0);
    ASSERT_TRUE(a.next_is(i, IBV_WC_SUCCESS));
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    ibv_wc completion{};
    ASSERT_TRUE(peers[i]->next(completion)) << i;
    EXPECT_EQ(completion.src_qp, a.number());
    EXPECT_TRUE(peers[i]->holds(kGrh, 64, static_cast<uint8_t>(i)));
  }
}

// And one handle serves all queue pairs of its domain (003:333 of the seeds).
TEST_F(Ud, OneHandleServesManyQueuePairs) {
  constexpr uint32_t kSenders = 50;
  std::vector<std::unique_ptr<End>> senders;
  for (uint32_t i = 0; i < kSenders; ++i) {
    senders.push_back(std::make_unique<End>(IBV_QPT_UD, 0, a.pd()));
    senders.back()->ready_datagrams();
    b.receive(i, 256 * i, 256);
  }
  for (uint32_t i = 0; i < kSenders; ++i) {
    senders[i]->fill(0, 64, static_cast<uint8_t>(i));
    ASSERT_EQ(senders[i]->post(to(i, 64)), 0);
    ASSERT_TRUE(senders[i]->next_is(i, IBV_WC_SUCCESS));
    ibv_wc completion{};
    ASSERT_TRUE(b.next(completion)) << i;
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.src_qp, senders[i]->number());
    EXPECT_TRUE(b.holds(256 * i + kGrh, 64, static_cast<uint8_t>(i)));
  }
}

TEST_F(Ud, AFloodArrivesWhole) {
  constexpr uint64_t kCount = 3000;
  uint64_t posted = 0;
  uint64_t sent = 0;
  uint64_t taken = 0;
  ibv_wc completion{};
  for (; posted < 256; ++posted) b.receive(posted, 0, 2048);
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (taken < kCount && std::chrono::steady_clock::now() < end) {
    // No more than there are receives: those are the program's business.
    while (sent < kCount && sent < posted && a.post(to(sent, 1024)) == 0) ++sent;
    (void)a.next(completion, {});
    while (b.next(completion, {})) {
      EXPECT_EQ(completion.wr_id, taken);
      ++taken;
      b.receive(posted++, 0, 2048);
    }
  }
  EXPECT_EQ(taken, kCount);
}

}  // namespace
}  // namespace verbena::unreliable
