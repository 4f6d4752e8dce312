// The ring of completions: order over growth, queue pairs that are forgotten, and whose memory it is in.
#include "verbs/waiting_completions.hpp"

#include <gtest/gtest.h>

#include "verbs/event_moderation.hpp"

namespace verbena::verbs {
namespace {

ibv_wc completion(uint64_t wr_id, uint32_t qpn = 1) {
  ibv_wc made{};
  made.wr_id = wr_id;
  made.qp_num = qpn;
  return made;
}

TEST(WaitingCompletions, KeepTheirOrderWhileTheRingGrows) {
  WaitingCompletions waiting;
  uint64_t in = 0, out = 0;
  for (int step = 0; step < 200; ++step) {
    for (int i = 0; i < 5; ++i, ++in) ASSERT_TRUE(waiting.push_back(completion(in), in * 10));
    for (int i = 0; i < 3; ++i, ++out) {
      ASSERT_EQ(out, waiting.front().completion.wr_id);
      ASSERT_EQ(out * 10, waiting.front().stamp_ns);
      waiting.pop_front();
    }
    ASSERT_EQ(in - out, waiting.size());
  }
}

TEST(WaitingCompletions, ForgetOneQueuePair) {
  WaitingCompletions waiting;
  for (uint64_t i = 0; i < 14; ++i) ASSERT_TRUE(waiting.push_back(completion(i), 0));
  for (uint64_t i = 0; i < 12; ++i) waiting.pop_front();
  for (uint64_t i = 14; i < 24; ++i)  // around the end of the ring
    ASSERT_TRUE(waiting.push_back(completion(i, static_cast<uint32_t>(i % 2)), 0));
  waiting.erase_of(0);
  uint64_t expected[] = {12, 13, 15, 17, 19, 21, 23};
  ASSERT_EQ(std::size(expected), waiting.size());
  for (const uint64_t wr_id : expected) {
    EXPECT_EQ(wr_id, waiting.front().completion.wr_id);
    waiting.pop_front();
  }
}

struct Counting final : QueueAllocator {
  int held = 0;
  base::Result<void*> allocate(size_t size, size_t, QueueUse) override {
    ++held;
    return std::malloc(size);
  }
  void release(void* memory, QueueUse) override {
    --held;
    std::free(memory);
  }
};

// Growing may happen on any thread; the program's memory goes back only when the queue is closed.
TEST(WaitingCompletions, OutgrownMemoryOfTheProgramStaysUntilTheEnd) {
  Counting allocator;
  {
    WaitingCompletions waiting;
    ASSERT_TRUE(waiting.reserve(allocator, 10).has_value());
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(waiting.push_back(completion(i), 0));
    EXPECT_EQ(1, allocator.held);
    EXPECT_EQ(0u, waiting.front().completion.wr_id);
    waiting = {};
    EXPECT_EQ(0, allocator.held);
  }
  EXPECT_EQ(0, allocator.held);
}

TEST(EventModeration, RingsForTheCountOrThePeriod) {
  using std::chrono::microseconds;
  EventModeration moderation;
  EXPECT_FALSE(moderation.on());
  moderation.set(3, microseconds(50));
  EXPECT_TRUE(moderation.on());
  const base::Instant start{1'000'000};
  EXPECT_FALSE(moderation.add(start));
  EXPECT_FALSE(moderation.add(start));
  EXPECT_TRUE(moderation.add(start));  // the third
  EXPECT_FALSE(moderation.holds());
  EXPECT_FALSE(moderation.add(start));
  EXPECT_FALSE(moderation.expire(start + microseconds(49)));
  EXPECT_TRUE(moderation.expire(start + microseconds(50)));
  EXPECT_FALSE(moderation.expire(start + microseconds(51)));
  EXPECT_FALSE(moderation.add(start));
  EXPECT_TRUE(moderation.add(start + microseconds(50)));
  for (const uint32_t count : {0u, 1u}) {
    moderation.set(count, microseconds(50));
    EXPECT_FALSE(moderation.on());
  }
  moderation.set(9, base::Duration{});
  EXPECT_FALSE(moderation.on());
}

}  // namespace
}  // namespace verbena::verbs
