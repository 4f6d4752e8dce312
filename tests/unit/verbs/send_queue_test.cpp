#include "verbs/send_queue.hpp"

#include <gtest/gtest.h>

#include "send_queue_script.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

// ---- Posting ----

TEST_F(SendQueueTest, RunsShortRequestsWhenTheyArePosted) {
  ibv_send_wr list[] = {send(1), send(2, 0), send(3)};
  list[0].next = &list[1];
  list[1].next = &list[2];
  ASSERT_EQ(0, queue_->post(list, nullptr));
  EXPECT_EQ((std::vector<uint64_t>{1, 2, 3}), path_.tried);
  EXPECT_EQ("1 3", completions()) << "2 isn't signalled";
  EXPECT_FALSE(list_.any());
}

TEST_F(SendQueueTest, SignalsAllWhereTheQueuePairWasMadeSo) {
  const auto all = make_queue(*qp_, {4, 2, 64}, true);
  all->set_path(&path_);
  all->set_state(SendState::kRuns);
  auto request = send(1, 0);
  ASSERT_EQ(0, all->post(&request, nullptr));
  EXPECT_EQ("1", completions());
  all->close();
}

TEST_F(SendQueueTest, RefusesWhatCantBe) {
  std::vector<ibv_sge> pieces(3, {0x1000, 8, 1});
  const auto code = [&](ibv_wr_opcode opcode, unsigned flags, int count, uint32_t length) {
    auto request = send(1, flags);
    request.opcode = opcode;
    pieces[0].length = length;
    request.sg_list = pieces.data();
    request.num_sge = count;
    return post(request);
  };
  EXPECT_EQ(EINVAL, code(IBV_WR_SEND, 0, 3, 8)) << "more pieces than asked for";
  EXPECT_EQ(EINVAL, code(IBV_WR_SEND, 0, -1, 8));
  EXPECT_EQ(EINVAL, code(IBV_WR_SEND, IBV_SEND_INLINE, 1, 65)) << "more inline than asked for";
  EXPECT_EQ(EINVAL, code(IBV_WR_RDMA_READ, IBV_SEND_INLINE, 1, 8));
  EXPECT_EQ(EINVAL, code(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_INLINE, 1, 8));
  EXPECT_NE(0, code(IBV_WR_DRIVER1, 0, 1, 8));
  EXPECT_TRUE(path_.tried.empty());
  queue_->set_state(SendState::kRefuses);
  EXPECT_EQ(EINVAL, post(send(1)));
}

TEST_F(SendQueueTest, NamesTheRequestThatIsBadAndRunsThoseBefore) {
  ibv_send_wr list[] = {send(1), send(2), send(3)};
  list[0].next = &list[1];
  list[1].next = &list[2];
  list[1].num_sge = 5;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(EINVAL, queue_->post(list, &bad));
  EXPECT_EQ(&list[1], bad);
  EXPECT_EQ("1", completions());
}

TEST_F(SendQueueTest, IsFullWithWhatItWasMadeFor) {
  path_.always = kSilent;
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(0, post(send(i)));
  auto request = send(16);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ENOMEM, queue_->post(&request, &bad));
  EXPECT_EQ(&request, bad);
  path_.always = {};
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ(ENOMEM, post(send(17))) << "they have ended, but nobody has polled that";
  EXPECT_EQ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", completions());
  EXPECT_EQ(0, post(send(17)));
  EXPECT_EQ("17", completions());
}

TEST_F(SendQueueTest, WhatCompletesSilentlyTakesNoPlace) {
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(0, post(send(i, 0)));
  EXPECT_EQ("", completions());
}

TEST_F(SendQueueTest, KeepsOrderOverManyLaps) {
  std::string expected;
  for (uint64_t i = 0; i < 50; ++i) {
    path_.answers = {kSilent, kSilent};  // when it is posted, and once more
    ASSERT_EQ(0, post(send(i)));
    ASSERT_EQ(0, post(send(1000 + i)));
    ASSERT_EQ(Pending::kNever, queue_->go_on(kStart));
    ASSERT_EQ(std::to_string(i) + " " + std::to_string(1000 + i), completions());
  }
}

TEST_F(SendQueueTest, CopiesInlineDataAtOnce) {
  path_.answers = {kSilent};
  std::string first = "in";
  std::string second = "line";
  ibv_sge pieces[] = {{reinterpret_cast<uint64_t>(first.data()), 2, 0},
                      {reinterpret_cast<uint64_t>(second.data()), 4, 0}};
  auto request = send(1, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  request.sg_list = pieces;
  request.num_sge = 2;
  ASSERT_EQ(0, post(request));
  first = "xx";
  second = "xxxx";
  path_.inline_seen.clear();
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("inline", path_.inline_seen);
}

TEST_F(SendQueueTest, CopiesTheListOfPiecesAtOnce) {
  path_.answers = {kSilent, kSilent};
  ibv_sge piece{0x1234, 8, 77};
  auto request = send(1);
  request.sg_list = &piece;
  request.num_sge = 1;
  ASSERT_EQ(0, post(request));
  piece = {};
  (void)queue_->go_on(kStart);
  EXPECT_EQ(0x1234u, path_.first_piece.addr);
  EXPECT_EQ(77u, path_.first_piece.lkey);
}

// ---- What needs no path ----

TEST_F(SendQueueTest, EndsWhatNoPathCouldCarry) {
  std::vector<ibv_sge> pieces(2, {0x1000, kMaxMessageBytes / 2, 1});
  pieces[1].length += 1;
  auto request = send(1);
  request.sg_list = pieces.data();
  request.num_sge = 2;
  ASSERT_EQ(0, post(request));
  EXPECT_EQ("1!" + std::to_string(IBV_WC_LOC_LEN_ERR), completions());
  EXPECT_TRUE(path_.tried.empty());
  EXPECT_EQ(IBV_QPS_ERR, qp_->state());
}

TEST_F(SendQueueTest, AtomicsHaveEightBytes) {
  ibv_sge piece{0x1000, 4, 1};
  auto request = send(1);
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.sg_list = &piece;
  request.num_sge = 1;
  ASSERT_EQ(0, post(request));
  EXPECT_EQ("1!" + std::to_string(IBV_WC_LOC_LEN_ERR), completions());
}

TEST_F(SendQueueTest, ReadsNeedMaxRdAtomic) {
  queue_->set_rules({.timeout = kTimeout, .retries = 2, .rnr_retries = 2, .fetches = 0});
  auto request = send(1);
  request.opcode = IBV_WR_RDMA_READ;
  ASSERT_EQ(0, post(request));
  EXPECT_EQ("1!" + std::to_string(IBV_WC_LOC_QP_OP_ERR), completions());
}

// ---- Silence ----

TEST_F(SendQueueTest, RetriesInSilenceThenGivesUp) {
  wait_in_queue({1, 2});
  path_.always = kSilent;
  Instant due = queue_->go_on(kStart);
  for (unsigned timeout = 1; timeout <= 2; ++timeout) {  // of the first try, and of the first retry
    EXPECT_EQ((kStart + timeout * kTimeout).ns, due.ns);
    // Called in between, as pollers do: it tries, but that counts for nothing.
    for (int i = 0; i < 5; ++i) EXPECT_EQ(due, queue_->go_on({due.ns - 1}));
    due = queue_->go_on(due);
  }
  EXPECT_EQ("", completions());
  EXPECT_EQ(Pending::kNever, queue_->go_on(due)) << "retry_cnt 2: three timeouts";
  EXPECT_EQ((kStart + 3 * kTimeout).ns, due.ns);
  EXPECT_EQ("1!" + std::to_string(IBV_WC_RETRY_EXC_ERR) + " 2!" + std::to_string(IBV_WC_WR_FLUSH_ERR),
            completions());
  EXPECT_EQ(IBV_QPS_ERR, qp_->state());
}

TEST_F(SendQueueTest, AnAnswerMakesTheCountBeginAnew) {
  wait_in_queue({1, 2});
  path_.answers = {kSilent, kSilent, kSilent, {}, kSilent, kSilent, kSilent, {}};
  Instant now = kStart;
  for (int i = 0; i < 8 && now != Pending::kNever; ++i) now = queue_->go_on(now);
  EXPECT_EQ("1 2", completions());
}

TEST_F(SendQueueTest, SoDoesEachPieceThatArrives) {
  std::vector<ibv_sge> piece(1, {0x1000, 1 << 20, 1});
  auto request = send(1);
  request.sg_list = piece.data();
  request.num_sge = 1;
  queue_->set_state(SendState::kHolds);
  ASSERT_EQ(0, post(request));
  queue_->set_state(SendState::kRuns);
  path_.answers = {kSilent, kSilent, kSilent, kMore, kSilent, kSilent, kSilent, kMore, {}};
  Instant now = kStart;
  for (int i = 0; i < 9; ++i) now = queue_->go_on(now);
  EXPECT_EQ(Pending::kNever, now);
  EXPECT_EQ("1", completions());
}

TEST_F(SendQueueTest, WithoutATimeoutOnlyADeadPeerEndsIt) {
  queue_->set_rules({.timeout = {}, .retries = 0, .rnr_retries = 0, .fetches = 1});
  wait_in_queue({1});
  path_.always = kSilent;
  Instant now = kStart;
  for (int i = 0; i < 1000; ++i) now = queue_->go_on(now);
  EXPECT_EQ("", completions());
  path_.gone = true;
  EXPECT_EQ(Pending::kNever, queue_->go_on(now));
  EXPECT_EQ("1!" + std::to_string(IBV_WC_RETRY_EXC_ERR), completions());
}

// ---- No receive ----

TEST_F(SendQueueTest, RetriesWithoutReceiveAsOftenAsRnrRetrySays) {
  for (const unsigned retries : {0u, 1u, 2u, 6u}) {
    auto qp = owner_.make_qp(cq_, {.peer_index = static_cast<uint16_t>(200 + retries)});
    const auto queue = make_queue(*qp, {4, 2, 64});
    queue->set_path(&path_);
    queue->set_rules({.timeout = kTimeout, .retries = 7, .rnr_retries = retries, .fetches = 1});
    queue->set_state(SendState::kHolds);
    auto request = send(1);
    ASSERT_EQ(0, queue->post(&request, nullptr));
    queue->set_state(SendState::kRuns);
    path_.always = kNotReady;
    const Instant due = queue->go_on(kStart);
    if (retries == 0) {
      EXPECT_EQ(Pending::kNever.ns, due.ns) << "the first NAK is one too many";
    } else {
      EXPECT_EQ((kStart + retries * kRnr).ns, due.ns) << "IBA 9.7.5.2.8: one NAK more than there are retries";
      EXPECT_EQ(due.ns, queue->go_on(kStart + base::Duration(1)).ns) << "called early it waits on";
      EXPECT_EQ(Pending::kNever.ns, queue->go_on(due).ns);
    }
    const auto completed = poll_all(*cq_);
    ASSERT_EQ(1u, completed.size());
    EXPECT_EQ(IBV_WC_RNR_RETRY_EXC_ERR, completed[0].status);
    EXPECT_EQ(IBV_QPS_ERR, qp->state());
    queue->close();
    qp->destroy();
  }
}

TEST_F(SendQueueTest, RnrRetrySevenIsForEver) {
  queue_->set_rules({.timeout = kTimeout, .retries = 0, .rnr_retries = 7, .fetches = 1});
  wait_in_queue({1});
  path_.always = kNotReady;
  Instant now = kStart;
  for (unsigned i = 1; i <= 1000; ++i) {
    const Instant due = queue_->go_on(now);
    EXPECT_GE(due - now, base::milliseconds(100)) << "the peer tells when a receive is posted";
    EXPECT_EQ(i, path_.asked) << "it may have told us, and another queue pair took the receive";
    now = due;
  }
  path_.always = {};
  EXPECT_EQ(Pending::kNever, queue_->go_on(now));
  EXPECT_EQ("1", completions());
}

TEST_F(SendQueueTest, AReceiveThatComesEarlyIsUsedEarly) {
  wait_in_queue({1});
  path_.answers = {kNotReady, {}};
  EXPECT_LT(kStart, queue_->go_on(kStart));
  EXPECT_EQ(1u, path_.asked);
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart + base::Duration(1)));
  EXPECT_EQ("1", completions());
}

TEST_F(SendQueueTest, AReceivePostedWhileWeAskIsUsedAtOnce) {
  wait_in_queue({1});
  path_.answers = {kNotReady, {}};
  path_.receive_there = true;
  EXPECT_EQ(kStart.ns, queue_->go_on(kStart).ns);
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("1", completions());
}

TEST_F(SendQueueTest, SilenceAfterAnRnrHasItsWholeTimeout) {
  queue_->set_rules({.timeout = kTimeout, .retries = 0, .rnr_retries = 7, .fetches = 1});
  wait_in_queue({1});
  path_.answers = {kNotReady};
  path_.always = kSilent;
  const Instant later = queue_->go_on(kStart);
  const Instant due = queue_->go_on(later);
  EXPECT_EQ((later + kTimeout).ns, due.ns) << "the RNR timer isn't the answer's";
  EXPECT_EQ("", completions());
  EXPECT_EQ(Pending::kNever, queue_->go_on(due));
}

// ---- Failure and flush ----

TEST_F(SendQueueTest, AFailureFlushesTheRestAndFailsTheQueuePair) {
  wait_in_queue({1, 2, 3});
  path_.answers = {{}, kRefused};
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("1 2!" + std::to_string(IBV_WC_REM_ACCESS_ERR) + " 3!" + std::to_string(IBV_WC_WR_FLUSH_ERR),
            completions());
  EXPECT_EQ(IBV_QPS_ERR, qp_->state());
}

TEST_F(SendQueueTest, ARequestThatFailsWhenPostedIsTriedOnce) {
  path_.answers = {kRefused};
  ASSERT_EQ(0, post(send(1)));
  EXPECT_EQ(1u, path_.tried.size()) << "an atomic would run twice";
  EXPECT_EQ("1!" + std::to_string(IBV_WC_REM_ACCESS_ERR), completions());
  EXPECT_EQ(IBV_QPS_ERR, qp_->state());
}

TEST_F(SendQueueTest, FailuresCompleteEvenIfUnsignalled) {
  path_.always = kRefused;
  ASSERT_EQ(0, post(send(1, 0)));
  EXPECT_EQ("1!" + std::to_string(IBV_WC_REM_ACCESS_ERR), completions());
}

TEST_F(SendQueueTest, InErrorEverythingIsFlushed) {
  wait_in_queue({1, 2});
  queue_->set_state(SendState::kFlushes);
  const std::string flushed = "!" + std::to_string(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ("1" + flushed + " 2" + flushed, completions());
  for (uint64_t i = 3; i < 20; ++i) {
    EXPECT_EQ(0, post(send(i, 0))) << "posting is no error";
    EXPECT_EQ(std::to_string(i) + flushed, completions());
  }
  EXPECT_TRUE(path_.tried.empty());
}

TEST_F(SendQueueTest, ForgottenOnesDontComplete) {
  wait_in_queue({1, 2});
  queue_->set_state(SendState::kRefuses);
  queue_->clear();
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_EQ("", completions());
  queue_->set_state(SendState::kRuns);
  EXPECT_EQ(0, post(send(3)));
  EXPECT_EQ("3", completions());
}

TEST_F(SendQueueTest, ClosedItDoesNothing) {
  wait_in_queue({1});
  queue_->close();
  EXPECT_EQ(Pending::kNever, queue_->go_on(kStart));
  EXPECT_TRUE(path_.tried.empty());
  EXPECT_EQ("", completions());
}

}  // namespace
}  // namespace verbena::verbs
