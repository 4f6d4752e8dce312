// What XRC requests do: each names a shared receive queue, whose receives and memory it is about.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "party.hpp"

namespace verbena::xrc {
namespace {

class Traffic : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nullptr, party.srq());
    initiator = party.make_initiator();
    target = party.make_target();
    ASSERT_TRUE(initiator != nullptr && target != nullptr);
    ASSERT_EQ(0, party.connect(target, initiator->qp_num));
    ASSERT_EQ(0, party.connect(initiator, target->qp_num));
    for (uint32_t i = 0; i < kBytes / 2; ++i) party.bytes()[i] = static_cast<uint8_t>(i * 7);
  }
  [[nodiscard]] bool arrived(uint32_t at, uint32_t length) {
    return std::equal(party.bytes().begin(), party.bytes().begin() + length, party.bytes().begin() + at);
  }
  [[nodiscard]] uint64_t address(uint32_t offset) {
    return reinterpret_cast<uint64_t>(party.bytes().data()) + offset;
  }
  Party party{-1};
  ibv_qp* initiator = nullptr;
  ibv_qp* target = nullptr;
};

TEST_F(Traffic, SendsOfAnyLengthArrive) {
  for (const uint32_t length : {0u, 1u, 40u, 5000u, 30000u}) {
    SCOPED_TRACE(length);
    std::fill(party.bytes().begin() + kBytes / 2, party.bytes().end(), uint8_t{0});
    ASSERT_EQ(0, party.post_receive(length, kBytes / 2, kBytes / 2));
    ASSERT_EQ(0, party.post(initiator, 1,
                            {.opcode = IBV_WR_SEND_WITH_IMM, .length = length, .srq = party.srq_number()}));
    const ibv_wc got = party.received();
    ASSERT_EQ(IBV_WC_SUCCESS, got.status);
    EXPECT_EQ(length, got.wr_id);
    EXPECT_EQ(length, got.byte_len);
    EXPECT_EQ(target->qp_num, got.qp_num);
    EXPECT_EQ(0x01020304u, got.imm_data);
    EXPECT_TRUE(arrived(kBytes / 2, length));
    ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  }
}

TEST_F(Traffic, WaitsForAReceive) {
  ASSERT_EQ(0, party.post(initiator, 1, {.srq = party.srq_number()}));
  EXPECT_EQ(kNothing, party.received(30).status);
  ASSERT_EQ(0, party.post_receive(2, kBytes / 2, 64));
  EXPECT_EQ(IBV_WC_SUCCESS, party.received().status);
  EXPECT_EQ(IBV_WC_SUCCESS, party.sent().status);
}

TEST_F(Traffic, MemoryIsReachedInTheDomainOfTheQueue) {
  const Party::Request to{.opcode = IBV_WR_RDMA_WRITE,
                          .length = 20000,
                          .srq = party.srq_number(),
                          .rkey = party.mr()->rkey,
                          .address = address(kBytes / 2)};
  ASSERT_EQ(0, party.post(initiator, 1, to));
  ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  EXPECT_TRUE(arrived(kBytes / 2, 20000));
  auto read = to;
  read.opcode = IBV_WR_RDMA_READ;
  read.address = address(0);
  read.offset = kBytes / 2;
  std::fill(party.bytes().begin() + kBytes / 2, party.bytes().end(), uint8_t{0});
  ASSERT_EQ(0, party.post(initiator, 2, read));
  ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  EXPECT_TRUE(arrived(kBytes / 2, 20000));
  auto add = to;
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  add.length = 8;
  add.offset = 64;
  add.add = 5;
  uint64_t before = 17;
  std::memcpy(party.bytes().data() + kBytes / 2, &before, sizeof before);
  ASSERT_EQ(0, party.post(initiator, 3, add));
  ASSERT_EQ(IBV_WC_SUCCESS, party.sent().status);
  std::memcpy(&before, party.bytes().data() + 64, sizeof before);
  EXPECT_EQ(17u, before);
  std::memcpy(&before, party.bytes().data() + kBytes / 2, sizeof before);
  EXPECT_EQ(22u, before);
}

TEST_F(Traffic, AQueueThatIsNotThereIsAnError) {
  ASSERT_EQ(0, party.post(initiator, 1, {.srq = party.srq_number() + 77}));
  EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, party.sent().status);
}

TEST_F(Traffic, AQueueOfAnotherDomainIsAnError) {
  Party other(-1);
  ASSERT_NE(nullptr, other.srq());
  ASSERT_EQ(0, other.post_receive(1, 0, 4096));
  ASSERT_EQ(0, party.post(initiator, 1, {.srq = other.srq_number()}));
  EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, party.sent().status);
  EXPECT_EQ(kNothing, other.received(10).status);
}

TEST_F(Traffic, AMessageThatIsTooLongFailsBothEnds) {
  ASSERT_EQ(0, party.post_receive(9, kBytes / 2, 100));
  ASSERT_EQ(0, party.post(initiator, 1, {.length = 5000, .srq = party.srq_number()}));
  EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, party.sent().status);
  const ibv_wc got = party.received();
  EXPECT_EQ(IBV_WC_LOC_LEN_ERR, got.status);
  EXPECT_EQ(9u, got.wr_id);
  ibv_async_event event{};
  ASSERT_EQ(0, ibv_get_async_event(party.context(), &event));
  EXPECT_EQ(IBV_EVENT_QP_REQ_ERR, event.event_type);
  EXPECT_EQ(target, event.element.qp);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace verbena::xrc
