// Compare-and-swap and fetch-and-add: what they do, and that nothing is lost however many run at once.
#include <functional>
#include <thread>
#include <vector>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

class AtomicsTest : public PairTest {};
RC_IN_BOTH(AtomicsTest);

TEST_P(AtomicsTest, WhatTheyDo) {
  for (const auto backing : {Backing::kPrivate, Backing::kShared}) {
    open_connected();
    const Buffer result = a().add_buffer(64);
    const Buffer target = b().add_buffer({.length = 4096, .backing = backing});
    const auto run = [&](const SendOrder& order) {
      EXPECT_EQ(0, a().post_send(order));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
      return a().word(result, 8);
    };
    for (const uint64_t offset : {0, 8, 2040, 4088}) {
      b().set_word(target, offset, 100);
      EXPECT_EQ(100u, run(fetch_add(1, result.piece(8, 8), target, offset, 7)));
      EXPECT_EQ(107u, run(fetch_add(1, result.piece(8, 8), target, offset, ~uint64_t{0})));  // minus one
      EXPECT_EQ(106u, b().word(target, offset));
      EXPECT_EQ(106u, run(compare_swap(1, result.piece(8, 8), target, offset, 105, 1)));
      EXPECT_EQ(106u, b().word(target, offset)) << "it was something else";
      EXPECT_EQ(106u, run(compare_swap(1, result.piece(8, 8), target, offset, 106, 0x0102030405060708)));
      EXPECT_EQ(0x0102030405060708u, b().word(target, offset));
      EXPECT_EQ(0x0102030405060708u, run(fetch_add(1, result.piece(8, 8), target, offset, 0)));
    }
    EXPECT_EQ(0u, a().word(result, 0));
    EXPECT_EQ(0u, a().word(result, 16));
  }
}

// The old value may be scattered over pieces.
TEST_P(AtomicsTest, ResultInPieces) {
  open_connected();
  const Buffer result = a().add_buffer(64);
  const Buffer target = b().add_buffer(64);
  b().set_word(target, 0, 0x0807060504030201);
  ASSERT_EQ(0, a().post_send(rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 1,
                                  {result.piece(0, 3), result.piece(3, 0), result.piece(3, 5)}, target)));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_EQ(0x0807060504030201u, a().word(result));
}

// In order with the rest: a READ behind an atomic sees what it did.
TEST_P(AtomicsTest, InOrderWithOthers) {
  open_connected();
  const Buffer local = a().add_buffer(64);
  const Buffer target = b().add_buffer(64);
  for (uint64_t i = 0; i < 50; ++i) {
    a().set_word(local, 0, 1000 * i);
    ASSERT_EQ(0, a().post_sends({rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(0, 8)}, target),
                                 fetch_add(2, local.piece(8, 8), target, 0, 5),
                                 rdma(IBV_WR_RDMA_READ, 3, {local.piece(16, 8)}, target)})
                     .error);
    for (const uint64_t wr_id : {1, 2, 3}) ASSERT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    EXPECT_EQ(1000 * i, a().word(local, 8));
    EXPECT_EQ(1000 * i + 5, a().word(local, 16));
  }
}

// One counter, many threads of this process with a connection each: not one addition is lost or made twice,
// and each old value is seen once.
TEST_P(AtomicsTest, AdditionsOfManyThreadsSumUp) {
  constexpr size_t kThreads = 6;
  constexpr uint64_t kEach = 300;
  for (const auto backing : {Backing::kPrivate, Backing::kShared}) {
    Side owner(there());
    const Buffer target = owner.add_buffer({.length = 64, .backing = backing});
    std::vector<std::unique_ptr<Side>> here;
    std::vector<std::unique_ptr<Side>> theirs;
    std::vector<Buffer> counters;
    for (size_t i = 0; i < kThreads; ++i) {
      here.push_back(std::make_unique<Side>(here_));
      theirs.push_back(std::make_unique<Side>(there()));
      rc::connect(*here.back(), *theirs.back());
    }
    // Each queue pair has a domain of its own, so the memory is registered in each; the word is the same.
    for (size_t i = 0; i < kThreads; ++i) counters.push_back(theirs.at(i)->share(target));
    std::vector<std::thread> threads;
    std::vector<std::vector<uint64_t>> seen(kThreads);
    for (size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        Side& side = *here.at(i);
        const Buffer result = side.add_buffer(64);
        for (uint64_t k = 0; k < kEach; ++k) {
          EXPECT_EQ(0, side.post_send(fetch_add(k, result.piece(0, 8), counters.at(i), 0, 1)));
          if (!next_is(side, Queue::kSend, k, IBV_WC_SUCCESS)) return;
          seen.at(i).push_back(side.word(result));
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(kThreads * kEach, owner.word(target));
    std::vector<bool> once(kThreads * kEach);
    for (const auto& values : seen)
      for (const uint64_t value : values) {
        ASSERT_LT(value, once.size());
        EXPECT_FALSE(once.at(value)) << value << " was seen twice";
        once.at(value) = true;
      }
    for (auto& side : theirs) side->close();
  }
}

// Locks made of compare-and-swap guard what they should, from two processes and the owner itself.
TEST_P(AtomicsTest, CompareAndSwapExcludes) {
  constexpr uint64_t kEach = 60;
  Side owner(there());
  const Buffer target = owner.add_buffer(64);
  const auto work = [&](Side& side, const Buffer& shared) {
    const Buffer local = side.add_buffer(64);
    const auto run = [&](const SendOrder& order) {
      EXPECT_EQ(0, side.post_send(order));
      return static_cast<bool>(next_is(side, Queue::kSend, 1, IBV_WC_SUCCESS));
    };
    for (uint64_t k = 0; k < kEach; ++k) {
      do {
        if (!run(compare_swap(1, local.piece(0, 8), shared, 0, 0, 1))) return;
      } while (side.word(local) != 0);
      // Read, add one, write: safe only under the lock.
      if (!run(rdma(IBV_WR_RDMA_READ, 1, {local.piece(8, 8)}, shared, 8))) return;
      side.set_word(local, 8, side.word(local, 8) + 1);
      if (!run(rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(8, 8)}, shared, 8))) return;
      if (!run(compare_swap(1, local.piece(0, 8), shared, 0, 1, 0))) return;
    }
  };
  std::vector<std::unique_ptr<Side>> ends;
  std::vector<std::thread> threads;
  const auto other = GetParam() == Where::kOneProcess ? here_ : Host::helper();
  for (const auto& host : {here_, here_, other}) {
    ends.push_back(std::make_unique<Side>(host));
    ends.push_back(std::make_unique<Side>(there()));
    rc::connect(*ends.at(ends.size() - 2), *ends.back());
    const Buffer shared = ends.back()->share(target);
    threads.emplace_back(work, std::ref(*ends.at(ends.size() - 2)), shared);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(3 * kEach, owner.word(target, 8));
  for (auto& end : ends) end->close();
}

// More at once than one process has under way to another.
TEST_P(AtomicsTest, HundredQueuePairsAtOnce) {
  constexpr size_t kPairs = 100;
  std::vector<std::unique_ptr<Side>> here;
  std::vector<std::unique_ptr<Side>> theirs;
  std::vector<Buffer> targets;
  std::vector<Buffer> results;
  EndpointSpec small;
  small.caps = {8, 8, 1, 1, 0};
  small.send_cqe = small.recv_cqe = 16;
  for (size_t i = 0; i < kPairs; ++i) {
    here.push_back(std::make_unique<Side>(here_, small));
    theirs.push_back(std::make_unique<Side>(there(), small));
    rc::connect(*here.back(), *theirs.back());
    results.push_back(here.back()->add_buffer(8));
    targets.push_back(theirs.back()->add_buffer(8));
  }
  for (uint64_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kPairs; ++i)
      ASSERT_EQ(0, here.at(i)->post_send(fetch_add(i, results.at(i).all(), targets.at(i), 0, i)));
    for (size_t i = 0; i < kPairs; ++i) {
      ASSERT_TRUE(next_is(*here.at(i), Queue::kSend, i, IBV_WC_SUCCESS));
      EXPECT_EQ(round * i, here.at(i)->word(results.at(i)));
    }
  }
  for (size_t i = 0; i < kPairs; ++i) EXPECT_EQ(3 * i, theirs.at(i)->word(targets.at(i)));
}

}  // namespace
}  // namespace verbena::rc
