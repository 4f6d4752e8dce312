// Extended queue pairs: every operation and setter, and that a batch is posted whole or not at all.
#include <atomic>
#include <thread>

#include "end.hpp"

namespace verbena::surface {
namespace {

constexpr EndSpec kExtended{.send_ops = kReliableOps};

class QpEx : public testing::Test {
 protected:
  void SetUp() override { connect(a_, b_); }
  // A batch of one; `build` calls the operation and its setters.
  template <typename Build>
  int one(uint64_t wr_id, Build build, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(a_.ex());
    a_.ex()->wr_id = wr_id;
    a_.ex()->wr_flags = flags;
    build(a_.ex());
    return ibv_wr_complete(a_.ex());
  }

  End a_{kExtended};
  End b_{kExtended};
};

TEST_F(QpEx, OnlyWhoAsksGetsOne) {
  End plain;
  EXPECT_EQ(nullptr, ibv_qp_to_qp_ex(plain.qp()));
  EXPECT_EQ(a_.qp(), &ibv_qp_to_qp_ex(a_.qp())->qp_base);
}

TEST_F(QpEx, Sends) {
  b_.receive(1, 0, 64);
  b_.receive(2, 64, 64);
  a_.set_word(0, 0x1111);
  ASSERT_EQ(0, one(10, [&](ibv_qp_ex* qp) {
              ibv_wr_send(qp);
              ibv_wr_set_sge(qp, a_.mr()->lkey, a_.address(), 8);
            }));
  ASSERT_TRUE(a_.next_is(10, IBV_WC_SUCCESS));
  ASSERT_TRUE(b_.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(0x1111u, b_.word(0));
  a_.set_word(8, 0x2222);
  ASSERT_EQ(0, one(11, [&](ibv_qp_ex* qp) {
              ibv_wr_send_imm(qp, htobe32(77));
              const ibv_sge list[] = {a_.piece(8, 8), a_.piece(0, 8)};
              ibv_wr_set_sge_list(qp, 2, list);
            }));
  ibv_wc completion{};
  ASSERT_TRUE(b_.next(completion));
  EXPECT_EQ(htobe32(77), completion.imm_data);
  EXPECT_EQ(16u, completion.byte_len);
  EXPECT_EQ(0x2222u, b_.word(64));
  EXPECT_EQ(0x1111u, b_.word(72));
}

TEST_F(QpEx, WritesAndReads) {
  a_.set_word(0, 0x77);
  b_.set_word(512, 0x88);
  b_.receive(5);
  ibv_wr_start(a_.ex());
  a_.ex()->wr_flags = IBV_SEND_SIGNALED;
  a_.ex()->wr_id = 1;
  ibv_wr_rdma_write(a_.ex(), b_.mr()->rkey, b_.address(128));
  ibv_wr_set_sge(a_.ex(), a_.mr()->lkey, a_.address(), 8);
  a_.ex()->wr_id = 2;
  ibv_wr_rdma_write_imm(a_.ex(), b_.mr()->rkey, b_.address(136), htobe32(9));
  ibv_wr_set_sge(a_.ex(), a_.mr()->lkey, a_.address(), 8);
  a_.ex()->wr_id = 3;
  ibv_wr_rdma_read(a_.ex(), b_.mr()->rkey, b_.address(512));
  ibv_wr_set_sge(a_.ex(), a_.mr()->lkey, a_.address(256), 8);
  ASSERT_EQ(0, ibv_wr_complete(a_.ex()));
  for (const uint64_t wr_id : {1, 2, 3}) ASSERT_TRUE(a_.next_is(wr_id, IBV_WC_SUCCESS));
  ASSERT_TRUE(b_.next_is(5, IBV_WC_SUCCESS));
  EXPECT_EQ(0x77u, b_.word(128));
  EXPECT_EQ(0x77u, b_.word(136));
  EXPECT_EQ(0x88u, a_.word(256));
}

TEST_F(QpEx, Atomics) {
  b_.set_word(0, 40);
  ASSERT_EQ(0, one(1, [&](ibv_qp_ex* qp) {
              ibv_wr_atomic_fetch_add(qp, b_.mr()->rkey, b_.address(), 2);
              ibv_wr_set_sge(qp, a_.mr()->lkey, a_.address(), 8);
            }));
  ASSERT_TRUE(a_.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(40u, a_.word(0));
  ASSERT_EQ(0, one(2, [&](ibv_qp_ex* qp) {
              ibv_wr_atomic_cmp_swp(qp, b_.mr()->rkey, b_.address(), 42, 99);
              ibv_wr_set_sge(qp, a_.mr()->lkey, a_.address(), 8);
            }));
  ASSERT_TRUE(a_.next_is(2, IBV_WC_SUCCESS));
  EXPECT_EQ(42u, a_.word(0));
  EXPECT_EQ(99u, b_.word(0));
}

// The data is taken when the setter is called, not when the batch is posted.
TEST_F(QpEx, InlineDataIsCopiedAtOnce) {
  b_.receive(1, 0, 64);
  b_.receive(2, 64, 64);
  char first[] = "inline", second[] = " data";
  ibv_wr_start(a_.ex());
  a_.ex()->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(a_.ex());
  ibv_wr_set_inline_data(a_.ex(), first, 6);
  std::memset(first, 'x', 6);
  std::memcpy(first, "in two", 6);
  ibv_wr_send(a_.ex());
  const ibv_data_buf list[] = {{first, 6}, {second, 5}};
  ibv_wr_set_inline_data_list(a_.ex(), 2, list);
  std::memset(first, 'x', 6);
  std::memset(second, 'x', 5);
  ASSERT_EQ(0, ibv_wr_complete(a_.ex()));
  ASSERT_TRUE(b_.next_is(1, IBV_WC_SUCCESS));
  ASSERT_TRUE(b_.next_is(2, IBV_WC_SUCCESS));
  EXPECT_EQ(0, std::memcmp(b_.bytes(), "inline", 6));
  EXPECT_EQ(0, std::memcmp(b_.bytes() + 64, "in two data", 11));
}

TEST_F(QpEx, TheLastSetterOfDataCounts) {
  b_.receive(1, 0, 64);
  b_.receive(2, 64, 64);
  std::memcpy(a_.bytes(), "pieces", 6);
  char text[] = "inline";
  const ibv_sge list[] = {a_.piece(0, 2), a_.piece(2, 2), a_.piece(4, 2)};
  ibv_wr_start(a_.ex());
  ibv_wr_send(a_.ex());
  ibv_wr_set_inline_data(a_.ex(), text, 6);
  ibv_wr_set_sge_list(a_.ex(), 3, list);
  ibv_wr_send(a_.ex());
  ibv_wr_set_sge_list(a_.ex(), 3, list);
  ibv_wr_set_inline_data(a_.ex(), text, 6);
  ASSERT_EQ(0, ibv_wr_complete(a_.ex()));
  ASSERT_TRUE(b_.next_is(1, IBV_WC_SUCCESS));
  ASSERT_TRUE(b_.next_is(2, IBV_WC_SUCCESS));
  EXPECT_EQ(0, std::memcmp(b_.bytes(), "pieces", 6));
  EXPECT_EQ(0, std::memcmp(b_.bytes() + 64, "inline", 6));
}

TEST_F(QpEx, FlagsAreEachRequestsOwn) {
  for (uint64_t i = 0; i < 3; ++i) b_.receive(i);
  ibv_wr_start(a_.ex());
  for (const unsigned flags : {0u, unsigned{IBV_SEND_SIGNALED}, 0u}) {
    a_.ex()->wr_id = 100 + flags;
    a_.ex()->wr_flags = flags;
    ibv_wr_send(a_.ex());
  }
  ASSERT_EQ(0, ibv_wr_complete(a_.ex()));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(b_.next_is(i, IBV_WC_SUCCESS));
  EXPECT_TRUE(a_.next_is(100 + IBV_SEND_SIGNALED, IBV_WC_SUCCESS));
  EXPECT_TRUE(a_.empty());
}

TEST_F(QpEx, AbortPostsNothing) {
  b_.receive(1);
  ibv_wr_start(a_.ex());
  a_.ex()->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(a_.ex());
  ibv_wr_abort(a_.ex());
  EXPECT_TRUE(b_.empty());
  EXPECT_TRUE(a_.empty());
  ibv_wr_start(a_.ex());
  EXPECT_EQ(0, ibv_wr_complete(a_.ex()));  // an empty batch is fine
  EXPECT_TRUE(a_.empty());
}

TEST_F(QpEx, OneBadRequestKeepsTheWholeBatch) {
  b_.receive(1);
  struct Row {
    const char* what;
    int error;
    void (*build)(ibv_qp_ex*, End&);
  };
  const Row rows[] = {
      {"inline data that is too long", EINVAL,
       [](ibv_qp_ex* qp, End& end) {
         ibv_wr_send(qp);
         ibv_wr_set_inline_data(qp, end.bytes(), 60'000);
       }},
      {"too many pieces", EINVAL,
       [](ibv_qp_ex* qp, End& end) {
         const std::vector<ibv_sge> many(33, end.piece(0, 8));
         ibv_wr_send(qp);
         ibv_wr_set_sge_list(qp, many.size(), many.data());
       }},
      {"inline data for a READ", EINVAL,
       [](ibv_qp_ex* qp, End& end) {
         ibv_wr_rdma_read(qp, end.mr()->rkey, end.address());
         ibv_wr_set_inline_data(qp, end.bytes(), 8);
       }},
      {"segmentation", EOPNOTSUPP, [](ibv_qp_ex* qp, End& end) { ibv_wr_send_tso(qp, end.bytes(), 8, 100); }},
  };
  for (const Row& row : rows) {
    ibv_wr_start(a_.ex());
    a_.ex()->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(a_.ex());
    ibv_wr_set_sge(a_.ex(), a_.mr()->lkey, a_.address(), 8);
    row.build(a_.ex(), a_);
    EXPECT_EQ(row.error, ibv_wr_complete(a_.ex())) << row.what;
  }
  ibv_wr_start(a_.ex());
  ibv_wr_set_sge(a_.ex(), a_.mr()->lkey, a_.address(), 8);  // of no request
  EXPECT_EQ(EINVAL, ibv_wr_complete(a_.ex()));
  EXPECT_TRUE(b_.empty());
  EXPECT_TRUE(a_.empty());
  EXPECT_EQ(0, a_.post_send(2));
  EXPECT_TRUE(b_.next_is(1, IBV_WC_SUCCESS));
}

TEST_F(QpEx, MoreThanTheQueueHolds) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(0, ibv_query_qp(a_.qp(), &attr, IBV_QP_CAP, &init));
  b_.receive(1);
  ibv_wr_start(a_.ex());
  a_.ex()->wr_flags = IBV_SEND_SIGNALED;
  for (uint32_t i = 0; i <= init.cap.max_send_wr; ++i) ibv_wr_send(a_.ex());
  EXPECT_EQ(ENOMEM, ibv_wr_complete(a_.ex()));
  EXPECT_TRUE(b_.empty());
  EXPECT_TRUE(a_.empty());
}

TEST(QpExStates, RefusedBeforeRts) {
  End a(kExtended);
  ibv_wr_start(a.ex());
  ibv_wr_send(a.ex());
  EXPECT_EQ(EINVAL, ibv_wr_complete(a.ex()));
}

TEST_F(QpEx, MixesWithClassicPosts) {
  for (uint64_t i = 0; i < 20; ++i) b_.receive(i, i * 64, 64);
  for (uint64_t i = 0; i < 20; ++i) {
    a_.set_word(i * 8, i);
    const auto build = [&](ibv_qp_ex* qp) {
      ibv_wr_send(qp);
      ibv_wr_set_sge(qp, a_.mr()->lkey, a_.address(i * 8), 8);
    };
    ASSERT_EQ(0, i % 2 == 0 ? a_.post_send(i, IBV_WR_SEND, i * 8, 8) : one(i, build));
  }
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(b_.next_is(i, IBV_WC_SUCCESS));
    ASSERT_TRUE(a_.next_is(i, IBV_WC_SUCCESS));
    EXPECT_EQ(i, b_.word(i * 64));
  }
}

// ibv_wr_start keeps other threads out until complete or abort: batches never mix.
TEST_F(QpEx, BatchesOfTwoThreadsStayWhole) {
  constexpr int kBatches = 200;
  std::atomic<uint64_t> received = 0;
  std::vector<uint32_t> order;
  const auto run = [&](uint32_t base) {
    for (int i = 0; i < kBatches; ++i) {
      int error = 0;
      do {
        ibv_wr_start(a_.ex());
        a_.ex()->wr_flags = 0;
        for (uint32_t k = 0; k < 4; ++k) ibv_wr_send_imm(a_.ex(), htobe32(base + k));
        a_.ex()->wr_id = base;
        error = ibv_wr_complete(a_.ex());
      } while (error == ENOMEM);
      ASSERT_EQ(0, error);
    }
  };
  for (uint64_t i = 0; i < 64; ++i) b_.receive(i);
  std::thread first(run, 0u), second(run, 100u);
  ibv_wc completion{};
  while (received < uint64_t{2} * kBatches * 4) {
    if (ibv_poll_cq(b_.cq(), 1, &completion) != 1) continue;
    ASSERT_EQ(IBV_WC_SUCCESS, completion.status);
    order.push_back(be32toh(completion.imm_data));
    b_.receive(1);
    ++received;
  }
  first.join();
  second.join();
  for (size_t i = 0; i < order.size(); i += 4)
    for (uint32_t k = 0; k < 4; ++k) ASSERT_EQ(order[i] + k, order[i + k]) << i;
}

TEST(QpExMaking, OperationsByType) {
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_cq* cq = ibv_create_cq(device(), 16, nullptr, nullptr, 0);
  const auto make = [&](ibv_qp_type type, uint32_t mask, uint64_t ops, uint32_t flags = 0, uint16_t tso = 0) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = type;
    attr.pd = pd;
    attr.comp_mask = mask;
    attr.send_ops_flags = ops;
    attr.create_flags = flags;
    attr.max_tso_header = tso;
    errno = 0;
    ibv_qp* made = ibv_create_qp_ex(device(), &attr);
    const int error = made != nullptr ? 0 : errno;
    EXPECT_EQ(0, made != nullptr ? ibv_destroy_qp(made) : 0);
    return error;
  };
  constexpr uint32_t kOps = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  EXPECT_EQ(0, make(IBV_QPT_RC, kOps,
                    kReliableOps | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV |
                        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_WRITE));
  EXPECT_EQ(0, make(IBV_QPT_UC, kOps, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE));
  EXPECT_EQ(0, make(IBV_QPT_UD, kOps, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_RC, kOps, IBV_QP_EX_WITH_TSO));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_UC, kOps, IBV_QP_EX_WITH_RDMA_READ));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_UD, kOps, IBV_QP_EX_WITH_RDMA_WRITE));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_RC, kOps, uint64_t{1} << 11));  // FLUSH, which these headers don't have
  EXPECT_EQ(EINVAL, make(IBV_QPT_RC, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND));
  EXPECT_EQ(0, make(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_UD, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0,
                             IBV_QP_CREATE_BLOCK_SELF_MCAST_LB));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0, 64));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, 0));
  EXPECT_EQ(EOPNOTSUPP, make(IBV_QPT_RAW_PACKET, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0));
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

}  // namespace
}  // namespace verbena::surface
