#include "verbs/shared_receive_queue.hpp"

#include <array>

#include "responder_script.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::Verdict;

constexpr Arrival kLong{.kind = Arrival::Kind::kSend, .length = 100'000};

// Two requesters, each connected to a queue pair of its own; both queue pairs take from one queue.
class SharedReceiveQueueTest : public testing::Test {
 protected:
  int post(uint64_t wr_id, size_t at, uint32_t length) {
    ibv_sge sge{first_.address(at), length, first_.key};
    ibv_recv_wr request{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    const int error = srq_->post(&request, &bad);
    EXPECT_EQ(error == 0 ? nullptr : &request, bad);
    return error;
  }
  // One that takes the script's whole second half; nothing is checked of what lies in the first.
  int post_large(uint64_t wr_id) { return post(wr_id, Script::kMemory / 2, 200'000); }
  static ibv_srq_attr limit(uint32_t limit) { return {.max_wr = 0, .max_sge = 0, .srq_limit = limit}; }
  static Completed received(uint64_t wr_id, uint32_t length) { return {.wr_id = wr_id, .length = length}; }

  OwnerProcess owner_;
  std::shared_ptr<SharedReceiveQueue> srq_ = owner_.make_srq(15);
  Script first_{owner_, {.peer_index = 100, .srq = srq_}};
  Script second_{owner_, {.peer = {8}, .peer_index = 200, .srq = srq_}};
};

TEST_F(SharedReceiveQueueTest, BothTakeFromIt) {
  EXPECT_EQ(Verdict::kNotReady, first_.deliver("none yet")());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(0, post(i, i * 64, 64));
  second_.play({"short", second_.deliver("one"), Verdict::kDone, Effects{.completions = {received(0, 3)}}});
  first_.play({"short", first_.deliver("four"), Verdict::kDone, Effects{.completions = {received(1, 4)}}});
  EXPECT_EQ("one", first_.text_at(0, 3));
  EXPECT_EQ("four", first_.text_at(64, 4));
  second_.play({"a notice", second_.finish_receive({}), Verdict::kSilence});
  second_.play(
      {{"begin", second_.begin_receive({.kind = Arrival::Kind::kWriteImm})},
       {"a notice", second_.finish_receive({.kind = Arrival::Kind::kWriteImm, .length = 9, .has_imm = true}),
        Verdict::kDone,
        Effects{.completions = {{.wr_id = 2, .length = 9, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .imm = 0}}}}});
}

TEST_F(SharedReceiveQueueTest, NoCreditIsPromised) {
  ASSERT_EQ(Verdict::kDone, first_.responder->reach());
  EXPECT_EQ(UINT32_MAX, first_.responder->credits());
}

TEST_F(SharedReceiveQueueTest, WhoIsSlowKeepsNobodyFromCompleting) {
  ASSERT_EQ(0, post_large(1));
  for (uint64_t i = 2; i < 16; ++i) ASSERT_EQ(0, post(i, i * 64, 64));
  EXPECT_EQ(ENOMEM, post(16, 0, 64));
  ASSERT_EQ(Verdict::kDone, first_.begin_receive(kLong)());
  ASSERT_EQ(Verdict::kDone, first_.place(0, "beginning")());
  // Many laps of the queue meanwhile.
  for (uint64_t i = 2; i < 200; ++i) {
    second_.play({"short", second_.deliver("x"), Verdict::kDone, Effects{.completions = {received(i, 1)}}});
    ASSERT_EQ(0, post(i + 14, 0, 64));
  }
  first_.play({"the end", first_.finish_receive(kLong), Verdict::kDone,
               Effects{.completions = {received(1, 100'000)}}});
}

TEST_F(SharedReceiveQueueTest, TooLongCompletesThatReceiveAndFailsThatQueuePairOnly) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(0, post(i, i * 64, 4));
  EXPECT_EQ(Verdict::kTooLong, first_.deliver("longer")());
  first_.play({"fail", first_.fail(Verdict::kTooLong), Verdict::kDone,
               Effects{.completions = {{.wr_id = 0, .status = IBV_WC_LOC_LEN_ERR}},
                       .events = {IBV_EVENT_QP_LAST_WQE_REACHED},
                       .state = IBV_QPS_ERR}});
  second_.play(
      {"the other", second_.deliver("fits"), Verdict::kDone, Effects{.completions = {received(1, 4)}}});
}

TEST_F(SharedReceiveQueueTest, AQueuePairThatLeavesFlushesNothingAndGivesBackWhatItHad) {
  ASSERT_EQ(0, post_large(1));
  ASSERT_EQ(0, post(2, 0, 64));
  ASSERT_EQ(Verdict::kDone, first_.begin_receive(kLong)());
  ASSERT_EQ(Verdict::kDone, first_.place(0, "half of it")());
  OwnerProcess::move_to(*first_.qp, IBV_QPS_ERR);
  first_.expect({.events = {IBV_EVENT_QP_LAST_WQE_REACHED}, .state = IBV_QPS_ERR});
  OwnerProcess::move_to(*first_.qp, IBV_QPS_ERR);
  first_.expect({.state = IBV_QPS_ERR});  // once is enough
  EXPECT_EQ(Verdict::kSilence, first_.place(10, "more")());
  second_.play(
      {{"the second", second_.deliver("x"), Verdict::kDone, Effects{.completions = {received(2, 1)}}},
       {"the one that is back", second_.deliver("y"), Verdict::kDone,
        Effects{.completions = {received(1, 1)}}},
       {"no more", second_.deliver("z"), Verdict::kNotReady}});
}

TEST_F(SharedReceiveQueueTest, NothingGoesBackWhileSomebodyCopiesIntoIt) {
  ASSERT_EQ(0, post_large(1));
  ASSERT_EQ(Verdict::kDone, first_.begin_receive(kLong)());
  first_.seen->scripted_memory().before_copy = [&] {
    OwnerProcess::move_to(*first_.qp, IBV_QPS_ERR);
    EXPECT_EQ(Verdict::kNotReady, second_.deliver("too early")());
  };
  EXPECT_EQ(Verdict::kDone, first_.place(0, "in the middle")());
  EXPECT_EQ(Verdict::kSilence, first_.place(10, "more")());
  (void)owner_.process().work();
  second_.play({"now", second_.deliver("x"), Verdict::kDone,
                Effects{.completions = {received(1, 1)}, .events = {IBV_EVENT_QP_LAST_WQE_REACHED}}});
}

TEST_F(SharedReceiveQueueTest, TheDeadGiveBackEverything) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(0, post(i, i * 64, 64));
  ASSERT_EQ(Verdict::kDone, first_.deliver("delivered")());
  ASSERT_EQ(Verdict::kDone, first_.begin_receive({.length = 10})());
  // A third receive, claimed by a process that died before it moved the head on.
  const arena::SharedReceives shared(owner_.own_arena(), srq_->index());
  const auto head = arena::SrqHead::unpack(shared.claims()->head.get());
  shared.word(head.entry)
      ->set(arena::ClaimWord{head.number, 1, kRequesterSlot.value, arena::ClaimWord::State::kClaimed}.pack());

  owner_.process().peer_gone(kRequesterSlot, 1);
  first_.expect({.completions = {received(0, 9)}});
  for (const uint64_t wr_id : {1, 2})
    second_.play(
        {"again", second_.deliver("x"), Verdict::kDone, Effects{.completions = {received(wr_id, 1)}}});
  EXPECT_EQ(Verdict::kNotReady, second_.deliver("z")());
}

TEST_F(SharedReceiveQueueTest, ARequesterThatGivesUpGivesBack) {
  ASSERT_EQ(0, post(1, 0, 64));
  ASSERT_EQ(Verdict::kDone, first_.begin_receive({.length = 10})());
  first_.responder.reset();
  EXPECT_EQ(1u, first_.seen->wakes);
  srq_->refresh();
  second_.play(
      {"its receive", second_.deliver("x"), Verdict::kDone, Effects{.completions = {received(1, 1)}}});
}

// XRC: a message of several packets, in the middle of which the queue goes. Its sender has to hear of it.
TEST_F(SharedReceiveQueueTest, ALaneWhoseQueueGoesSaysSo) {
  auto lanes = *SharedReceiveQueue::create(owner_.process(), {.domain = owner_.domain(),
                                                              .max_wr = 4,
                                                              .max_sge = 1,
                                                              .cq = owner_.make_cq(8),
                                                              .xrcd = owner_.domain()->handle()});
  const QpSetup setup{.peer = {9}, .peer_index = 300};
  const auto queue_pair = owner_.make_qp(owner_.make_cq(8), setup);
  const auto seen = owner_.seen_from(setup.peer);
  Responder lane(seen, {queue_pair->number()}, OwnerProcess::identity(setup),
                 {.owner = seen, .number = lanes->number(), .life = lanes->life()});
  ibv_sge sge{first_.address(0), 200'000, first_.key};
  ibv_recv_wr request{.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(0, lanes->post(&request, &bad));
  std::array<std::byte, 1024> bytes{};
  const iovec part{bytes.data(), bytes.size()};
  ASSERT_EQ(Verdict::kDone, lane.begin_receive(kLong));
  ASSERT_EQ(Verdict::kDone, lane.place(0, {&part, 1}, engine::Tail::kAnyOrder));
  lanes->close();
  lanes.reset();
  EXPECT_EQ(Verdict::kNoSharedQueue, lane.place(1024, {&part, 1}, engine::Tail::kAnyOrder));
}

TEST_F(SharedReceiveQueueTest, TheLimitIsToldOnce) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(0, post(i, i * 64, 64));
  ASSERT_TRUE(srq_->modify(limit(3), IBV_SRQ_LIMIT));
  EXPECT_EQ(3u, srq_->query().srq_limit);
  first_.play({{"three left", first_.deliver("x"), Verdict::kDone, Effects{.completions = {received(0, 1)}}},
               {"two left", first_.deliver("x"), Verdict::kDone, kUnseen}});
  EXPECT_EQ(1u, first_.seen->wakes) << "its owner may not poll";
  first_.expect({.completions = {received(1, 1)}, .events = {IBV_EVENT_SRQ_LIMIT_REACHED}});
  EXPECT_EQ(0u, srq_->query().srq_limit);
  first_.play({"one left", first_.deliver("x"), Verdict::kDone, Effects{.completions = {received(2, 1)}}});
  ASSERT_TRUE(srq_->modify(limit(2), IBV_SRQ_LIMIT));
  EXPECT_EQ(std::vector{IBV_EVENT_SRQ_LIMIT_REACHED}, owner_.take_events()) << "armed too late";
  EXPECT_FALSE(srq_->modify(limit(16), IBV_SRQ_LIMIT));
  EXPECT_FALSE(srq_->modify(limit(1), 1 << 5));
}

TEST_F(SharedReceiveQueueTest, GrowsAndShrinksWhileInUse) {
  for (uint64_t i = 0; i < 15; ++i) ASSERT_EQ(0, post(i, 0, 64));
  ASSERT_EQ(ENOMEM, post(15, 0, 64));
  ASSERT_EQ(Verdict::kDone, first_.begin_receive({.length = 1})());
  ASSERT_TRUE(srq_->modify({.max_wr = 100, .max_sge = 0, .srq_limit = 0}, IBV_SRQ_MAX_WR));
  EXPECT_EQ(127u, srq_->query().max_wr);
  for (uint64_t i = 15; i < 127; ++i) ASSERT_EQ(0, post(i, 0, 64));
  EXPECT_EQ(ENOMEM, post(127, 0, 64));
  EXPECT_FALSE(srq_->modify({.max_wr = 63, .max_sge = 0, .srq_limit = 0}, IBV_SRQ_MAX_WR));
  for (uint64_t i = 1; i < 127; ++i)
    second_.play({"each", second_.deliver("x"), Verdict::kDone, Effects{.completions = {received(i, 1)}}});
  ASSERT_EQ(Verdict::kDone, first_.place(0, "x")());
  first_.play({"the first", first_.finish_receive({.length = 1}), Verdict::kDone,
               Effects{.completions = {received(0, 1)}}});
  ASSERT_TRUE(srq_->modify({.max_wr = 15, .max_sge = 0, .srq_limit = 0}, IBV_SRQ_MAX_WR));
  for (uint64_t i = 0; i < 15; ++i) ASSERT_EQ(0, post(i, 0, 64));
  EXPECT_EQ(ENOMEM, post(15, 0, 64));
}

TEST_F(SharedReceiveQueueTest, ALyingPeerFailsItsQueuePairOnly) {
  ASSERT_EQ(0, post(1, 0, 64));
  ASSERT_EQ(Verdict::kDone, first_.deliver("x")());
  const arena::SharedReceives shared(owner_.own_arena(), srq_->index());
  for (uint16_t i = 0; i < 16; ++i) shared.word(i)->set(UINT64_MAX);
  first_.expect({.events = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED}, .state = IBV_QPS_ERR});
  EXPECT_EQ(IBV_QPS_RTS, second_.qp->state());
}

TEST_F(SharedReceiveQueueTest, KeysAreInTheQueuesOwnDomain) {
  ProtectionDomains domains;
  const auto other = *domains.allocate("verbena0");
  auto srq = *SharedReceiveQueue::create(owner_.process(), {other, 4, 1, nullptr, nullptr});
  Script third{owner_, {.peer_index = 300, .srq = srq}};
  const uint32_t key = owner_.register_memory({.address = third.address(0),
                                               .length = 4096,
                                               .iova = third.address(0),
                                               .domain = other->handle(),
                                               .access = IBV_ACCESS_LOCAL_WRITE});
  ibv_sge sge{third.address(0), 64, key};
  ibv_recv_wr request{.wr_id = 5, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(0, srq->post(&request, &bad));
  third.play({"into it", third.deliver("x"), Verdict::kDone, Effects{.completions = {received(5, 1)}}});
}

TEST_F(SharedReceiveQueueTest, RefusesWhatTheDeviceDoesNotHave) {
  const auto made = [&](uint32_t wr, uint32_t sge) {
    return SharedReceiveQueue::create(owner_.process(), {owner_.domain(), wr, sge, nullptr, nullptr});
  };
  EXPECT_FALSE(made(0, 1));
  EXPECT_FALSE(made(kMaxSrqWr + 1, 1));
  EXPECT_FALSE(made(1, kMaxSrqSge + 1));
  const auto largest = made(kMaxSrqWr, kMaxSrqSge);
  ASSERT_TRUE(largest);
  EXPECT_EQ(uint32_t{kMaxSrqWr}, (*largest)->query().max_wr);
}

}  // namespace
}  // namespace verbena::verbs
