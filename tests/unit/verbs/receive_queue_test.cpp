#include "verbs/receive_queue.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

class ReceiveQueueTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<ReceiveQueue> make(uint32_t capacity, uint32_t pieces) {
    return *ReceiveQueue::create(owner_.own_arena(), heap_, entry(), capacity, pieces);
  }
  [[nodiscard]] arena::QpEntry& entry() { return owner_.own_arena().qp(9); }
  [[nodiscard]] uint32_t promise() { return entry().fits_plus_one.get(); }
  [[nodiscard]] int post(ReceiveQueue& queue, uint64_t wr_id, std::vector<ibv_sge> pieces) {
    const ibv_recv_wr request{
        .wr_id = wr_id, .sg_list = pieces.data(), .num_sge = static_cast<int>(pieces.size())};
    return queue.post(request, owner_.domain()->handle());
  }
  [[nodiscard]] ibv_sge piece(uint32_t length) { return {address(), length, key_}; }
  [[nodiscard]] uint64_t address() { return reinterpret_cast<uint64_t>(memory_.data()); }

  OwnerProcess owner_;
  arena::Heap heap_{arena::kTablesHeapAt, arena::kTablesHeapAt + 65536};
  std::vector<std::byte> memory_ = std::vector<std::byte>(65536);
  uint32_t key_ = owner_.register_memory(memory_, IBV_ACCESS_LOCAL_WRITE);
};

TEST_F(ReceiveQueueTest, HandsOutInTheOrderOfPosting) {
  const auto queue = make(4, 2);
  EXPECT_TRUE(queue->empty());
  for (uint64_t lap = 0; lap < 10; ++lap) {
    for (uint64_t i = 0; i < 3; ++i)
      ASSERT_EQ(0, post(*queue, lap * 3 + i, {piece(10), piece(static_cast<uint32_t>(i + 1))}));
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_FALSE(queue->empty());
      const auto front = queue->front();
      EXPECT_EQ(lap * 3 + i, front.wr_id);
      EXPECT_EQ(11 + i, front.entry->capacity.get());
      EXPECT_EQ(2, front.entry->count.get());
      EXPECT_EQ(address(), front.pieces()[1].address.get());
      EXPECT_EQ(i + 1, front.pieces()[1].length.get());
      EXPECT_EQ(key_, front.pieces()[1].lkey.get());
      queue->pop();
    }
    EXPECT_TRUE(queue->empty());
  }
  EXPECT_EQ(30u, entry().posted.get());
}

TEST_F(ReceiveQueueTest, HoldsAsManyAsAskedForAtLeastAndNoMoreThanItSays) {
  for (const uint32_t asked : {0u, 1u, 5u, 64u}) {
    const auto queue = make(asked, 1);
    EXPECT_GE(queue->capacity(), std::max(asked, 1u));
    for (uint32_t i = 0; i < queue->capacity(); ++i) ASSERT_EQ(0, post(*queue, i, {piece(1)}));
    EXPECT_EQ(ENOMEM, post(*queue, 99, {piece(1)}));
    queue->pop();
    EXPECT_EQ(0, post(*queue, 99, {piece(1)}));
    EXPECT_EQ(ENOMEM, post(*queue, 99, {piece(1)}));
  }
}

TEST_F(ReceiveQueueTest, RefusesMorePiecesThanItWasMadeFor) {
  const auto queue = make(4, 2);
  EXPECT_EQ(EINVAL, post(*queue, 1, {piece(1), piece(1), piece(1)}));
  const ibv_recv_wr negative{.num_sge = -1};
  EXPECT_EQ(EINVAL, queue->post(negative, owner_.domain()->handle()));
  EXPECT_TRUE(queue->empty());
}

TEST_F(ReceiveQueueTest, SkipsEmptyPieces) {
  const auto queue = make(4, 4);
  ASSERT_EQ(0, post(*queue, 1, {{0, 0, 0}, piece(7), {0, 0, 12345}}));
  EXPECT_EQ(1, queue->front().entry->count.get());
  EXPECT_EQ(7u, queue->front().entry->capacity.get());
  ASSERT_EQ(0, post(*queue, 2, {}));
  EXPECT_EQ(1u, promise()) << "fits nothing but an empty message";
}

TEST_F(ReceiveQueueTest, MarksWhatCantReceive) {
  const auto queue = make(16, 2);
  const uint32_t read_only = owner_.register_memory(memory_, IBV_ACCESS_REMOTE_READ);
  const uint32_t foreign = owner_.register_memory(
      {address(), 4096, address(), owner_.domain()->handle() + 1, IBV_ACCESS_LOCAL_WRITE});
  const std::vector<ibv_sge> bad[] = {{{address(), 1, 0}},
                                      {{address(), 1, key_ + 1}},
                                      {{address(), 65537, key_}},
                                      {{address() - 1, 1, key_}},
                                      {{address(), 1, read_only}},
                                      {{address(), 1, foreign}},
                                      {piece(1), {address() + 65536, 1, key_}}};
  for (const auto& pieces : bad) {
    ASSERT_EQ(0, post(*queue, 1, pieces)) << "it is no error to post it";
    EXPECT_EQ(0u, promise());
    queue->pop();
  }
  ASSERT_EQ(0, post(*queue, 1, {piece(5)}));
  EXPECT_EQ(6u, promise());
}

TEST_F(ReceiveQueueTest, PromisesWhatTheSmallestThatWaitsTakes) {
  const auto queue = make(8, 1);
  ASSERT_EQ(0, post(*queue, 1, {piece(100)}));
  EXPECT_EQ(101u, promise());
  ASSERT_EQ(0, post(*queue, 2, {piece(200)}));
  EXPECT_EQ(101u, promise());
  ASSERT_EQ(0, post(*queue, 3, {piece(50)}));
  EXPECT_EQ(51u, promise());
  queue->pop();
  queue->pop();
  ASSERT_EQ(0, post(*queue, 4, {piece(300)}));
  EXPECT_EQ(51u, promise()) << "the one of 50 still waits";
  queue->pop();
  queue->pop();
  ASSERT_EQ(0, post(*queue, 5, {piece(300)}));
  EXPECT_EQ(301u, promise());
}

TEST_F(ReceiveQueueTest, WithdrawsItsPromiseWithAKeyInUse) {
  const auto queue = make(8, 2);
  const uint32_t other = owner_.register_memory(memory_, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(0, post(*queue, 1, {piece(100), {address(), 1, other}}));
  ASSERT_EQ(0, post(*queue, 2, {piece(100)}));
  queue->withdraw_promise(other + 1);
  EXPECT_EQ(101u, promise());
  queue->withdraw_promise(other);
  EXPECT_EQ(0u, promise());
  ASSERT_EQ(0, post(*queue, 3, {piece(100)}));
  EXPECT_EQ(0u, promise()) << "none is given while those wait";
  queue->pop();
  queue->withdraw_promise(other);
  while (!queue->empty()) queue->pop();
  ASSERT_EQ(0, post(*queue, 4, {piece(100)}));
  EXPECT_EQ(101u, promise());
  queue->withdraw_promise(other);
  EXPECT_EQ(101u, promise()) << "what was taken doesn't count";
}

TEST_F(ReceiveQueueTest, ALengthPastTheWordsEndIsCut) {
  const auto queue = make(2, 4);
  const std::vector<ibv_sge> huge(4, {address(), UINT32_MAX, key_});
  ASSERT_EQ(0, post(*queue, 1, huge));
  EXPECT_EQ(UINT32_MAX - 1, queue->front().entry->capacity.get());
}

TEST_F(ReceiveQueueTest, ForgetsAllOnReset) {
  const auto queue = make(4, 1);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(0, post(*queue, i, {piece(1)}));
  queue->pop();
  queue->clear();
  EXPECT_TRUE(queue->empty());
  EXPECT_EQ(0u, entry().posted.get());
  EXPECT_EQ(0u, promise());
  for (uint32_t i = 0; i < queue->capacity(); ++i) ASSERT_EQ(0, post(*queue, 10 + i, {piece(1)}));
  EXPECT_EQ(10u, queue->front().wr_id);
}

TEST_F(ReceiveQueueTest, GivesItsRoomBack) {
  for (int i = 0; i < 10; ++i) {
    auto large = ReceiveQueue::create(owner_.own_arena(), heap_, entry(), 1024, 3);  // all of the heap
    ASSERT_TRUE(large) << i;
    const auto none = ReceiveQueue::create(owner_.own_arena(), heap_, owner_.own_arena().qp(10), 1, 1);
    ASSERT_FALSE(none);
    EXPECT_EQ(ENOMEM, none.error().code);
  }
}

TEST_F(ReceiveQueueTest, IsPostedToWhileItIsTakenFrom) {
  constexpr uint64_t kAll = 20'000;
  const auto queue = make(16, 1);
  std::jthread posts([&] {
    for (uint64_t i = 0; i < kAll;)
      if (post(*queue, i, {piece(static_cast<uint32_t>(1 + i % 100))}) == 0)
        ++i;
      else
        std::this_thread::yield();
  });
  for (uint64_t i = 0; i < kAll;) {
    if (queue->empty()) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(i, queue->front().wr_id);
    EXPECT_EQ(1 + i % 100, queue->front().entry->capacity.get());
    queue->pop();
    ++i;
  }
}

}  // namespace
}  // namespace verbena::verbs
