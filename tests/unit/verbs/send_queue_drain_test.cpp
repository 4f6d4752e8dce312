// A send queue that is stopped in the middle: pieces, SQD, states that change under a copy.
#include <gtest/gtest.h>

#include "send_queue_script.hpp"

namespace verbena::verbs {
namespace {

class LongSendTest : public SendQueueTest {
 protected:
  [[nodiscard]] int post_long(uint64_t wr_id, uint32_t length = 1 << 20) {
    ibv_sge piece{0x1000, length, 1};
    auto request = send(wr_id);
    request.sg_list = &piece;
    request.num_sge = 1;
    return post(request);
  }
  [[nodiscard]] std::vector<ibv_event_type> events() { return owner_.take_events(); }
};

TEST_F(LongSendTest, APostCopiesOnePieceAndTheRestGoesOnLater) {
  path_.answers = {kMore, kMore, kMore};
  ASSERT_EQ(0, post_long(1));
  EXPECT_EQ(1u, path_.tried.size());
  EXPECT_TRUE(list_.any());
  EXPECT_EQ(kStart, queue_->go_on(kStart)) << "at once";
  EXPECT_EQ(kStart, queue_->go_on(kStart));
  EXPECT_EQ("", completions());
  finish();
  EXPECT_EQ("1", completions());
}

TEST_F(LongSendTest, NoCallCopiesMoreThanItsPiece) {
  for (int i = 0; i < 20; ++i) path_.answers.push_back(kMore);
  ASSERT_EQ(0, post_long(1, 1 << 30));
  for (uint64_t budget : path_.budgets) EXPECT_LE(budget, 256u * 1024);
  path_.budgets.clear();
  (void)queue_->go_on(kStart);
  uint64_t in_one_call = 0;
  for (uint64_t budget : path_.budgets) in_one_call += budget;
  EXPECT_LE(in_one_call, 256u * 1024);
}

TEST_F(LongSendTest, ShortOnesBehindALongOneKeepTheirPlace) {
  path_.answers = {kMore};
  ASSERT_EQ(0, post_long(1));
  ASSERT_EQ(0, post(send(2)));
  finish();
  EXPECT_EQ("1 2", completions());
}

// ---- SQD ----

TEST_F(LongSendTest, HeldItTakesRequestsAndStartsNone) {
  queue_->set_state(SendState::kHolds);
  EXPECT_EQ(0, post(send(1)));
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_TRUE(path_.tried.empty());
  EXPECT_TRUE(queue_->idle());
  queue_->set_state(SendState::kRuns);
  EXPECT_TRUE(list_.any());
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("1", completions());
}

TEST_F(LongSendTest, HeldItEndsWhatItBegan) {
  path_.answers = {kMore, kMore};
  ASSERT_EQ(0, post_long(1));
  ASSERT_EQ(0, post(send(2)));
  queue_->set_state(SendState::kHolds);
  EXPECT_FALSE(queue_->idle());
  finish();
  EXPECT_EQ("1", completions()) << "but not the next";
  EXPECT_TRUE(queue_->idle());
  queue_->set_state(SendState::kRuns);
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("2", completions());
}

// The same through ibv_modify_qp, which tells when the queue is drained.
TEST(Drain, RaisesItsEventOnceTheLastPieceIsThere) {
  for (const uint32_t last : {1000u, 256u * 1024}) {  // also one that takes all that a call may copy
    OwnerProcess owner;
    const auto cq = owner.make_cq(64);
    ScriptedPath* path = nullptr;
    const auto qp = owner.make_qp(cq, {}, [&] {
      auto made = std::make_unique<ScriptedPath>();
      path = made.get();
      return made;
    });
    const auto drain = [&] {
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_SQD;
      attributes.en_sqd_async_notify = 1;
      EXPECT_TRUE(qp->modify(attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
    };
    drain();
    EXPECT_EQ(std::vector{IBV_EVENT_SQ_DRAINED}, owner.take_events()) << "nothing was under way";
    OwnerProcess::move_to(*qp, IBV_QPS_RTS);
    ibv_sge piece{0x1000, 2 * 256 * 1024 + last, 1};
    auto request = send(1);
    request.sg_list = &piece;
    request.num_sge = 1;
    path->answers = {kMore, kMore};
    ASSERT_EQ(0, qp->post_send(&request, nullptr));
    drain();
    EXPECT_TRUE(owner.take_events().empty());
    ibv_qp_attr shown{};
    qp->query(shown);
    EXPECT_EQ(1, shown.sq_draining);
    EXPECT_EQ(1u, poll_all(*cq).size());
    EXPECT_EQ(std::vector{IBV_EVENT_SQ_DRAINED}, owner.take_events())
        << "the last piece had " << last << " bytes";
    qp->query(shown);
    EXPECT_EQ(0, shown.sq_draining);
    EXPECT_EQ(IBV_QPS_SQD, qp->state());
    qp->destroy();
  }
}

// ---- Under a copy ----

TEST_F(LongSendTest, AStateThatChangesUnderACopyWaitsForItsEnd) {
  for (const SendState state : {SendState::kFlushes, SendState::kRefuses, SendState::kHolds}) {
    path_.answers = {kMore};
    path_.inside = false;
    path_.blocks = true;
    std::jthread poster([&] { EXPECT_EQ(0, post_long(1)); });
    while (!path_.inside) std::this_thread::yield();
    std::atomic<bool> changed = false;
    std::jthread changer([&] {
      queue_->set_state(state);
      changed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(changed) << "a thread is inside";
    path_.blocks = false;
    poster.join();
    changer.join();
    EXPECT_EQ(state == SendState::kFlushes ? "1!" + std::to_string(IBV_WC_WR_FLUSH_ERR) : "", completions());
    queue_->set_state(SendState::kRefuses);
    queue_->clear();
    queue_->set_state(SendState::kRuns);
  }
}

TEST_F(LongSendTest, OthersPostAndPollWhileOneCopies) {
  path_.answers = {kMore};
  path_.blocks = true;
  std::jthread poster([&] { EXPECT_EQ(0, post_long(1)); });
  while (!path_.inside) std::this_thread::yield();
  EXPECT_EQ(0, post(send(2))) << "no lock is held while copying";
  EXPECT_NE(Pending::kNever, queue_->go_on(kStart)) << "and nobody else goes on meanwhile";
  EXPECT_EQ(1u, path_.tried.size());
  path_.blocks = false;
  poster.join();
  finish();
  EXPECT_EQ("1 2", completions());
}

TEST_F(LongSendTest, ManyThreadsPostAndEachRequestCompletesOnce) {
  constexpr unsigned kThreads = 3;
  constexpr uint64_t kEach = 300;
  std::atomic<unsigned> left = kThreads;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach;) {
        const int error = i % 7 == 0 ? post_long(t * 1000 + i) : post(send(t * 1000 + i));
        if (error == 0)
          ++i;
        else
          std::this_thread::yield();
      }
      --left;
    });
  std::vector<std::vector<uint64_t>> got(kThreads);
  for (unsigned total = 0; total < kThreads * kEach;) {
    list_.step(base::now());
    for (const ibv_wc& completion : poll_all(*cq_)) {
      queue_->polled();
      EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
      got[completion.wr_id / 1000].push_back(completion.wr_id % 1000);
      ++total;
    }
    if (left == 0) (void)queue_->go_on(base::now());
  }
  for (const auto& numbers : got) {
    ASSERT_EQ(kEach, numbers.size());
    for (uint64_t i = 0; i < kEach; ++i) EXPECT_EQ(i, numbers[i]);
  }
}

}  // namespace
}  // namespace verbena::verbs
