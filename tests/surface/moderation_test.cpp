// ibv_modify_cq: events for many completions, or after a while.
#include <poll.h>

#include <cstdlib>
#include <thread>

#include "end.hpp"

namespace verbena::surface {
namespace {

using Clock = std::chrono::steady_clock;

struct Channel {
  ibv_comp_channel* ibv = ibv_create_comp_channel(device());
  ~Channel() { EXPECT_EQ(0, ibv_destroy_comp_channel(ibv)); }
};

class Moderation : public testing::Test {
 protected:
  void SetUp() override { connect(a_, b_); }

  [[nodiscard]] bool rings(int milliseconds) {
    pollfd asked{.fd = channel_.ibv->fd, .events = POLLIN, .revents = 0};
    if (poll(&asked, 1, milliseconds) != 1) return false;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    EXPECT_EQ(0, ibv_get_cq_event(channel_.ibv, &cq, &context));
    EXPECT_EQ(a_.cq(), cq);
    ibv_ack_cq_events(cq, 1);
    return true;
  }
  // A write's completion is pushed before the post returns, or a moment after.
  void complete_writes(int count) {
    for (int i = 0; i < count; ++i) {
      ibv_sge one = a_.piece(0, 8);
      ibv_send_wr request{};
      request.sg_list = &one;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma.remote_addr = b_.address();
      request.wr.rdma.rkey = b_.mr()->rkey;
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(0, ibv_post_send(a_.qp(), &request, &bad));
    }
  }
  void moderate(uint16_t count, uint16_t microseconds) {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {.cq_count = count, .cq_period = microseconds};
    ASSERT_EQ(0, ibv_modify_cq(a_.cq(), &attr));
  }

  Channel channel_;
  End a_{{.channel = channel_.ibv}};
  End b_;
};

TEST_F(Moderation, WithoutItTheFirstRings) {
  ASSERT_EQ(0, ibv_req_notify_cq(a_.cq(), 0));
  complete_writes(1);
  EXPECT_TRUE(rings(10'000));
}

TEST_F(Moderation, FewRingWhenThePeriodIsOver) {
  moderate(1000, 60'000);
  ASSERT_EQ(0, ibv_req_notify_cq(a_.cq(), 0));
  const auto began = Clock::now();
  complete_writes(3);
  ASSERT_TRUE(rings(10'000));  // they do, though no 1000 came and nobody polls
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(55));
}

TEST_F(Moderation, ManyRingAtOnce) {
  moderate(4, 65'535);
  ASSERT_EQ(0, ibv_req_notify_cq(a_.cq(), 0));
  const auto began = Clock::now();
  complete_writes(3);
  const bool early = rings(0);
  EXPECT_TRUE(!early || Clock::now() - began > std::chrono::milliseconds(60));
  complete_writes(1);
  EXPECT_TRUE(early || rings(10'000));
}

TEST_F(Moderation, TurnedOffAgain) {
  moderate(1000, 65'535);
  moderate(0, 0);
  ASSERT_EQ(0, ibv_req_notify_cq(a_.cq(), 0));
  complete_writes(1);
  EXPECT_TRUE(rings(10'000));
}

TEST_F(Moderation, NothingElseCanBeModified) {
  ibv_modify_cq_attr attr{};
  for (const uint32_t mask : {0u, 2u, 3u}) {
    attr.attr_mask = mask;
    EXPECT_EQ(EINVAL, ibv_modify_cq(a_.cq(), &attr)) << mask;
  }
}

TEST(Acknowledging, DestroyingSaysWhatItWaitsFor) {
  ibv_comp_channel* channel = ibv_create_comp_channel(device());
  ibv_cq* cq = ibv_create_cq(device(), 16, nullptr, channel, 0);
  {
    End a({.cq = cq}), b;
    connect(a, b);
    ASSERT_EQ(0, ibv_req_notify_cq(cq, 0));
    b.receive(1);
    ASSERT_EQ(0, a.post_send(1));
    ibv_cq* rung = nullptr;
    void* context = nullptr;
    ASSERT_EQ(0, ibv_get_cq_event(channel, &rung, &context));
    ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  }
  setenv("VERBENA_EXPLAIN", "1", 1);
  testing::internal::CaptureStderr();
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ibv_ack_cq_events(cq, 1);
  });
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  late.join();
  unsetenv("VERBENA_EXPLAIN");
  EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find(
                                   "ibv_destroy_cq waits until the program acknowledges 1"));
  EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
}

}  // namespace
}  // namespace verbena::surface
