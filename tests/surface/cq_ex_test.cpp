// Extended completion queues: every field, timestamps, mixing with ibv_poll_cq, and how one is made.
#include <poll.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "end.hpp"

namespace verbena::surface {
namespace {

constexpr uint64_t kStamps =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr EndSpec kExtended{.wc_flags = IBV_WC_STANDARD_FLAGS | kStamps, .send_ops = kReliableOps};

uint64_t device_clock() {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(0, ibv_query_rt_values_ex(device(), &values));
  EXPECT_EQ(uint32_t{IBV_VALUES_MASK_RAW_CLOCK}, values.comp_mask);
  return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(values.raw_clock.tv_nsec);
}

uint64_t wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Waits for a first completion; ibv_end_poll is due when it returns 0.
int start(ibv_cq_ex* cq) {
  const auto until = std::chrono::steady_clock::now() + kSoon;
  ibv_poll_cq_attr attr{};
  int error = ENOENT;
  while (error == ENOENT && std::chrono::steady_clock::now() < until) error = ibv_start_poll(cq, &attr);
  return error;
}

TEST(CqEx, EveryField) {
  End a(kExtended), b(kExtended);
  connect(a, b);
  b.receive(70);
  ibv_wr_start(a.ex());
  a.ex()->wr_id = 7;
  a.ex()->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(a.ex(), htobe32(0x1234));
  ibv_wr_set_sge(a.ex(), a.mr()->lkey, a.address(), 24);
  ASSERT_EQ(0, ibv_wr_complete(a.ex()));

  ASSERT_EQ(0, start(b.cq_ex()));
  EXPECT_EQ(70u, b.cq_ex()->wr_id);
  EXPECT_EQ(IBV_WC_SUCCESS, b.cq_ex()->status);
  EXPECT_EQ(IBV_WC_RECV, ibv_wc_read_opcode(b.cq_ex()));
  EXPECT_EQ(24u, ibv_wc_read_byte_len(b.cq_ex()));
  EXPECT_EQ(htobe32(0x1234), ibv_wc_read_imm_data(b.cq_ex()));
  EXPECT_EQ(unsigned{IBV_WC_WITH_IMM}, ibv_wc_read_wc_flags(b.cq_ex()) & IBV_WC_WITH_IMM);
  EXPECT_EQ(b.qp()->qp_num, ibv_wc_read_qp_num(b.cq_ex()));
  EXPECT_EQ(0u, ibv_wc_read_slid(b.cq_ex()));
  EXPECT_EQ(0, ibv_wc_read_sl(b.cq_ex()));
  EXPECT_EQ(0, ibv_wc_read_dlid_path_bits(b.cq_ex()));
  EXPECT_EQ(ENOENT, ibv_next_poll(b.cq_ex()));
  ibv_end_poll(b.cq_ex());

  ASSERT_EQ(0, start(a.cq_ex()));
  EXPECT_EQ(7u, a.cq_ex()->wr_id);
  EXPECT_EQ(IBV_WC_SEND, ibv_wc_read_opcode(a.cq_ex()));
  ibv_end_poll(a.cq_ex());
}

TEST(CqEx, ErrorsCarryTheirVendorCode) {
  End a(kExtended), b(kExtended);
  connect(a, b);
  ibv_wr_start(a.ex());
  a.ex()->wr_id = 1;
  ibv_wr_rdma_write(a.ex(), b.mr()->rkey, b.address());
  ibv_wr_set_sge(a.ex(), a.mr()->lkey + 0x100, a.address(), 8);
  ASSERT_EQ(0, ibv_wr_complete(a.ex()));
  ASSERT_EQ(0, start(a.cq_ex()));
  EXPECT_EQ(IBV_WC_LOC_PROT_ERR, a.cq_ex()->status);
  EXPECT_NE(0u, ibv_wc_read_vendor_err(a.cq_ex()));
  ibv_end_poll(a.cq_ex());
}

// On the device's clock and on the wall's, between what both showed before and after.
TEST(CqEx, TimestampsLieBetweenBeforeAndAfter) {
  End a(kExtended), b(kExtended);
  connect(a, b);
  uint64_t last = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    b.receive(i);
    const uint64_t before = device_clock(), wall_before = wall_clock();
    ASSERT_EQ(0, a.post_send(i));
    for (End* end : {&a, &b}) {
      ASSERT_EQ(0, start(end->cq_ex()));
      const uint64_t stamp = ibv_wc_read_completion_ts(end->cq_ex());
      const uint64_t wall = ibv_wc_read_completion_wallclock_ns(end->cq_ex());
      ibv_end_poll(end->cq_ex());
      EXPECT_GE(stamp, before);
      EXPECT_LE(stamp, device_clock());
      EXPECT_GE(wall + 1'000'000, wall_before);  // two clocks can't be read at one instant
      EXPECT_LE(wall, wall_clock() + 1'000'000);
      if (end == &a) {
        EXPECT_GT(stamp, last);
        last = stamp;
      }
    }
  }
}

// It is stamped when it completes, not when the program looks.
TEST(CqEx, TheStampDoesNotWaitForThePoll) {
  End a(kExtended), b(kExtended);
  connect(a, b);
  b.receive(1);
  ASSERT_EQ(0, a.post_send(1));
  ASSERT_EQ(0, start(b.cq_ex()));
  ibv_end_poll(b.cq_ex());
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const uint64_t looked = device_clock();
  ASSERT_EQ(0, start(a.cq_ex()));
  EXPECT_LT(ibv_wc_read_completion_ts(a.cq_ex()), looked - 30'000'000);
  ibv_end_poll(a.cq_ex());
}

TEST(CqEx, MixesWithPlainPolls) {
  End a(kExtended), b(kExtended);
  connect(a, b);
  for (uint64_t i = 0; i < 12; ++i) b.receive(i);
  for (uint64_t i = 0; i < 12; ++i) ASSERT_EQ(0, a.post_send(i));
  uint64_t expected = 0;
  while (expected < 12) {
    ASSERT_EQ(0, start(b.cq_ex()));
    EXPECT_EQ(expected++, b.cq_ex()->wr_id);
    ASSERT_TRUE(b.next_is(expected, IBV_WC_SUCCESS));  // also while the other kind is at it
    ++expected;
    while (ibv_next_poll(b.cq_ex()) == ENOENT) {
    }
    EXPECT_EQ(expected++, b.cq_ex()->wr_id);
    ibv_end_poll(b.cq_ex());
    ASSERT_TRUE(b.next_is(expected, IBV_WC_SUCCESS));
    ++expected;
  }
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ENOENT, ibv_start_poll(b.cq_ex(), &attr));
  attr.comp_mask = 1;
  EXPECT_EQ(EINVAL, ibv_start_poll(b.cq_ex(), &attr));
}

// Each completion is one thread's, and stays what it is until that thread is done with it.
TEST(CqEx, TwoThreadsShareOneQueue) {
  constexpr uint64_t kCount = 2000;
  End a(kExtended), b(kExtended);
  connect(a, b);
  std::atomic<uint64_t> seen = 0, next_receive = 0, changed = 0;
  std::vector<std::atomic<int>> times(kCount + 64);
  const auto take = [&] {
    ibv_poll_cq_attr attr{};
    while (seen < kCount) {
      if (ibv_start_poll(b.cq_ex(), &attr) != 0) continue;
      do {
        const uint64_t wr_id = b.cq_ex()->wr_id;
        const uint64_t stamp = ibv_wc_read_completion_ts(b.cq_ex());
        ++times[wr_id];
        b.receive(next_receive++);
        changed += b.cq_ex()->wr_id != wr_id || ibv_wc_read_completion_ts(b.cq_ex()) != stamp ? 1u : 0u;
        ++seen;
      } while (ibv_next_poll(b.cq_ex()) == 0);
      ibv_end_poll(b.cq_ex());
    }
  };
  while (next_receive < 64) b.receive(next_receive++);
  std::thread first(take), second(take);
  ibv_wc completion{};
  for (uint64_t i = 0; i < kCount; ++i) {
    while (a.post_send(i) == ENOMEM) (void)ibv_poll_cq(a.cq(), 1, &completion);
    while (ibv_poll_cq(a.cq(), 1, &completion) == 1) {
    }
  }
  first.join();
  second.join();
  EXPECT_EQ(kCount, seen);
  EXPECT_EQ(0u, changed);
  for (const auto& count : times) EXPECT_LE(count, 1);
}

struct Refused {
  uint64_t wc_flags;
  uint32_t comp_mask;
  uint32_t flags;
  uint32_t cqe;
  int error;
};

TEST(CqEx, WhatIsRefused) {
  for (const auto& row :
       {Refused{IBV_WC_EX_WITH_CVLAN, 0, 0, 16, EOPNOTSUPP},
        Refused{IBV_WC_EX_WITH_FLOW_TAG, 0, 0, 16, EOPNOTSUPP},
        Refused{IBV_WC_EX_WITH_TM_INFO, 0, 0, 16, EOPNOTSUPP},
        Refused{uint64_t{1} << 40, 0, 0, 16, EOPNOTSUPP}, Refused{0, 1u << 5, 0, 16, EOPNOTSUPP},
        Refused{0, IBV_CQ_INIT_ATTR_MASK_FLAGS, 1u << 7, 16, EOPNOTSUPP},
        Refused{0, IBV_CQ_INIT_ATTR_MASK_PD, 0, 16, EINVAL}, Refused{0, 0, 0, 0, EINVAL},
        Refused{0, 0, 0, UINT32_MAX, EINVAL}}) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = row.cqe;
    attr.wc_flags = row.wc_flags;
    attr.comp_mask = row.comp_mask;
    attr.flags = row.flags;
    errno = 0;
    EXPECT_EQ(nullptr, ibv_create_cq_ex(device(), &attr));
    EXPECT_EQ(row.error, errno) << row.wc_flags << ' ' << row.comp_mask;
  }
  // A plain domain is no parent domain.
  ibv_pd* pd = ibv_alloc_pd(device());
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = pd;
  EXPECT_EQ(nullptr, ibv_create_cq_ex(device(), &attr));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

bool async_event_waits() {
  pollfd asked{.fd = device()->async_fd, .events = POLLIN, .revents = 0};
  return poll(&asked, 1, 50) == 1;
}

// Whoever says that it can't overflow gets no event and keeps its queue pairs, whatever it loses.
TEST(CqEx, IgnoringOverrun) {
  const ibv_qp_cap caps{
      .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  End a, b({.cq_flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
            .cqe = 7,
            .caps = caps});
  connect(a, b);
  for (uint64_t i = 0; i < 40; ++i) b.receive(i);
  for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(0, a.post_send(i));
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(a.next_is(i, IBV_WC_SUCCESS));
  EXPECT_EQ(0, ibv_resize_cq(b.cq(), 7));
  EXPECT_FALSE(async_event_waits());
  EXPECT_EQ(IBV_QPS_RTS, b.state());
  ibv_wc completion{};
  uint64_t taken = 0, last = 0;
  while (b.next(completion, std::chrono::milliseconds(20))) {
    ++taken;
    last = completion.wr_id;
  }
  EXPECT_EQ(7u, taken);
  EXPECT_EQ(39u, last);  // the newest is never the one that is lost
  b.receive(100);
  ASSERT_EQ(0, a.post_send(100));
  EXPECT_TRUE(b.next_is(100, IBV_WC_SUCCESS));
}

}  // namespace
}  // namespace verbena::surface
