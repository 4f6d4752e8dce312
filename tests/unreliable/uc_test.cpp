// Unreliable connections: what arrives is whole and in order; what doesn't, nobody tells.
#include <arpa/inet.h>

#include "end.hpp"

namespace verbena::unreliable {
namespace {

struct Uc : testing::Test {
  Uc() {
    a.connect(b);
    b.connect(a);
  }
  [[nodiscard]] Message write_of(uint64_t wr_id, uint32_t length, size_t to) {
    return {.wr_id = wr_id,
            .length = length,
            .opcode = IBV_WR_RDMA_WRITE,
            .remote_address = reinterpret_cast<uint64_t>(b.bytes() + to),
            .rkey = b.mr()->rkey};
  }
  End a{IBV_QPT_UC};
  End b{IBV_QPT_UC};
};

TEST_F(Uc, SendsOfEveryLengthArrive) {
  uint8_t seed = 1;
  for (const uint32_t length : {0u, 1u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 4096u, 65536u, 300'001u}) {
    b.receive(length, 0, 512 << 10);
    a.fill(0, length, ++seed);
    ASSERT_EQ(a.post({.wr_id = length, .length = length}), 0);
    ASSERT_TRUE(a.next_is(length, IBV_WC_SUCCESS));
    ibv_wc completion{};
    ASSERT_TRUE(b.next(completion)) << length;
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.opcode, IBV_WC_RECV);
    EXPECT_EQ(completion.byte_len, length);
    EXPECT_TRUE(b.holds(0, length, seed)) << length;
  }
}

TEST_F(Uc, ImmediatesComeWithSendsAndWrites) {
  b.receive(1, 0, 4096);
  b.receive(2, 4096, 4096);
  a.fill(0, 3000, 9);
  ASSERT_EQ(a.post({.wr_id = 1, .length = 3000, .opcode = IBV_WR_SEND_WITH_IMM, .imm = htonl(0x1234)}), 0);
  Message write = write_of(2, 3000, 100'000);
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write.imm = htonl(0x5678);
  ASSERT_EQ(a.post(write), 0);
  ibv_wc completion{};
  ASSERT_TRUE(b.next(completion));
  EXPECT_EQ(completion.opcode, IBV_WC_RECV);
  EXPECT_EQ(completion.wc_flags, IBV_WC_WITH_IMM);
  EXPECT_EQ(ntohl(completion.imm_data), 0x1234u);
  ASSERT_TRUE(b.next(completion));
  EXPECT_EQ(completion.wr_id, 2u);
  EXPECT_EQ(completion.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(completion.byte_len, 3000u);
  EXPECT_EQ(ntohl(completion.imm_data), 0x5678u);
  EXPECT_TRUE(b.holds(100'000, 3000, 9));
}

TEST_F(Uc, WritesLeaveNoCompletionAtTheTarget) {
  a.fill(0, 200'000, 5);
  b.receive(7, 0, 64);
  ASSERT_EQ(a.post(write_of(1, 200'000, 500'000)), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  const auto end = std::chrono::steady_clock::now() + kSoon;
  ibv_wc completion{};
  while (!b.holds(500'000, 200'000, 5) && std::chrono::steady_clock::now() < end)
    ASSERT_FALSE(b.next(completion, std::chrono::milliseconds(1)));
  EXPECT_TRUE(b.holds(500'000, 200'000, 5));
}

// IBA 9.8.2.2: nobody is told, and the connection lives on.
TEST_F(Uc, WhatIsNotAllowedIsDroppedInSilence) {
  b.receive(1, 0, 4096);
  Message wrong = write_of(1, 64, 0);
  wrong.rkey ^= 0x100;
  ASSERT_EQ(a.post(wrong), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  ASSERT_EQ(a.post({.wr_id = 2, .length = 5000}), 0);  // longer than the receive
  ASSERT_TRUE(a.next_is(2, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.nothing_comes());
  ASSERT_EQ(a.post({.wr_id = 3, .length = 64}), 0);
  ASSERT_TRUE(a.next_is(3, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(b.state(), IBV_QPS_RTS);
}

TEST_F(Uc, WithoutAReceiveTheMessageIsLost) {
  ASSERT_EQ(a.post({.wr_id = 1}), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.nothing_comes());
  b.receive(5, 0, 4096);
  EXPECT_TRUE(b.nothing_comes());
  ASSERT_EQ(a.post({.wr_id = 2}), 0);
  EXPECT_TRUE(b.next_is(5, IBV_WC_SUCCESS));
}

TEST_F(Uc, AFailedSendStopsTheSendQueueOnly) {
  b.receive(1, 0, 4096);
  a.receive(9, 4096, 4096);
  ASSERT_EQ(a.post({.wr_id = 1, .lkey = a.mr()->lkey ^ 0x100}), 0);
  ASSERT_TRUE(a.next_is(1, IBV_WC_LOC_PROT_ERR));
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  ASSERT_EQ(a.post({.wr_id = 2}), 0);
  ASSERT_TRUE(a.next_is(2, IBV_WC_WR_FLUSH_ERR));
  // Receives live on.
  ASSERT_EQ(b.post({.wr_id = 1}), 0);
  ASSERT_TRUE(a.next_is(9, IBV_WC_SUCCESS));
  ASSERT_EQ(a.to_rts(), 0);
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
  a.fill(0, 2000, 3);
  ASSERT_EQ(a.post({.wr_id = 3, .length = 2000}), 0);
  ASSERT_TRUE(a.next_is(3, IBV_WC_SUCCESS));
  ibv_wc completion{};
  ASSERT_TRUE(b.next(completion));
  if (completion.wr_id == 1 && (completion.opcode & IBV_WC_RECV) == 0) {
    ASSERT_TRUE(b.next(completion));  // the send's own
  }
  EXPECT_EQ(completion.byte_len, 2000u);
  EXPECT_TRUE(b.holds(0, 2000, 3));
}

TEST_F(Uc, RefusesWhatTheServiceDoesNotHave) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Message message = write_of(1, 8, 0);
    message.opcode = opcode;
    EXPECT_EQ(a.post(message), EINVAL);
  }
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
}

// More than any socket holds: nothing is lost all the same, for Verbena's processes wait for each other.
TEST_F(Uc, AFloodArrivesWhole) {
  constexpr uint64_t kCount = 200;
  constexpr uint32_t kLength = 60'000;
  for (uint64_t i = 0; i < kCount; ++i) b.receive(i, 0, 64 << 10);
  uint64_t sent = 0;
  uint64_t taken = 0;
  ibv_wc completion{};
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (taken < kCount && std::chrono::steady_clock::now() < end) {
    while (sent < kCount && a.post({.wr_id = sent, .length = kLength}) == 0) ++sent;
    (void)a.next(completion, {});
    while (b.next(completion, {})) {
      EXPECT_EQ(completion.wr_id, taken);
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      EXPECT_EQ(completion.byte_len, kLength);
      ++taken;
    }
  }
  EXPECT_EQ(taken, kCount);
}

}  // namespace
}  // namespace verbena::unreliable
