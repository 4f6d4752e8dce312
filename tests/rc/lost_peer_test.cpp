// The peer's process dies or is stopped: what the survivor sees (DESIGN 2.8, first row).
#include <unistd.h>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

using Clock = std::chrono::steady_clock;

class LostPeer : public testing::Test {
 protected:
  void set(uint8_t timeout, uint8_t retries) {
    Links links = links_between(a_, b_);
    links.a.timeout = timeout;
    links.a.retry_cnt = retries;
    connect(a_, b_, links);
    local_ = a_.add_buffer(65536);
    remote_ = b_.add_buffer(65536);
    shared_ = b_.add_buffer({.length = 65536, .backing = Backing::kShared});
  }

  std::shared_ptr<Host> helper_ = Host::helper();
  Side a_{Host::here()};
  Side b_{helper_};
  Buffer local_;
  Buffer remote_;
  Buffer shared_;
};

TEST_F(LostPeer, KilledBeforeTheRequest) {
  set(13, 2);  // 3 * 33.6 ms
  ASSERT_EQ(0, a_.post_receive(21, {local_.all()}));
  helper_->kill();
  ::usleep(50'000);  // in the first moment nobody knows yet
  const auto begin = Clock::now();
  ASSERT_EQ(0, a_.post_sends({send_of(1, {local_.piece(0, 64)}), send_of(2, {})}).error);
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
  EXPECT_GE(Clock::now() - begin, Wait(98));
  EXPECT_LT(Clock::now() - begin, Wait(3000));
  EXPECT_TRUE(state_is(a_, IBV_QPS_ERR));
  EXPECT_TRUE(next_is(a_, Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
  EXPECT_TRUE(next_is(a_, Queue::kReceive, 21, IBV_WC_WR_FLUSH_ERR));
  EXPECT_TRUE(no_event(a_));
}

// A death alone changes nothing for who only receives (SEEDS: a disconnect doesn't flush).
TEST_F(LostPeer, ReceivesStay) {
  set(13, 2);
  ASSERT_EQ(0, a_.post_receive(21, {local_.all()}));
  helper_->kill();
  EXPECT_EQ(kNone, a_.next(Queue::kReceive, Wait(300)).status);
  EXPECT_TRUE(state_is(a_, IBV_QPS_RTS));
  EXPECT_TRUE(no_event(a_, kNow));
}

TEST_F(LostPeer, KilledWithTimeoutZero) {
  if (over_wire()) GTEST_SKIP() << "from afar the dead are only silent, and timeout 0 waits for ever";
  set(0, 7);
  helper_->kill();
  const auto begin = Clock::now();
  ASSERT_EQ(0, a_.post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 64)}, remote_)));
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
  EXPECT_LT(Clock::now() - begin, Wait(1000)) << "it is known to be dead";
}

TEST_F(LostPeer, KilledWhileTheRequestWaits) {
  if (over_wire()) GTEST_SKIP() << "from afar the dead are only silent, and timeout 0 waits for ever";
  set(0, 7);
  ASSERT_EQ(0, a_.post_send(send_of(1, {local_.piece(0, 64)})));  // no receive there
  EXPECT_TRUE(nothing_comes(a_, Queue::kSend));
  helper_->kill();
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
}

// Every kind of request notices, whatever way it takes.
TEST_F(LostPeer, EveryOperation) {
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    auto host = Host::helper();
    Side a(Host::here());
    Side b(host);
    Links links = links_between(a, b);
    links.a.timeout = 12;
    links.a.retry_cnt = 1;
    connect(a, b, links);
    const Buffer local = a.add_buffer(65536);
    const Buffer remote = b.add_buffer(65536);
    const Buffer shared = b.add_buffer({.length = 65536, .backing = Backing::kShared});
    // One that works first, so that everything is set up.
    ASSERT_EQ(0, a.post_send(rdma(IBV_WR_RDMA_WRITE, 9, {local.piece(0, 64)}, i % 2 == 0 ? remote : shared)));
    EXPECT_TRUE(next_is(a, Queue::kSend, 9, IBV_WC_SUCCESS));
    const SendOrder orders[] = {rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(0, 64)}, remote),
                                rdma(IBV_WR_RDMA_WRITE, 1, {local.piece(0, 20000)}, shared),
                                rdma(IBV_WR_RDMA_READ, 1, {local.piece(0, 20000)}, remote),
                                rdma(IBV_WR_RDMA_READ, 1, {local.piece(0, 64)}, shared),
                                fetch_add(1, local.piece(0, 8), remote, 0, 1),
                                fetch_add(1, local.piece(0, 8), shared, 0, 1)};
    host->kill();
    ::usleep(50'000);  // in the first moment nobody knows yet
    ASSERT_EQ(0, a.post_send(orders[i]));
    EXPECT_TRUE(next_is(a, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
    EXPECT_TRUE(state_is(a, IBV_QPS_ERR));
  }
}

TEST_F(LostPeer, KilledInTheMiddleOfALongWrite) {
  ibv_wc found{};
  // If the machine puts us aside for so long, all is written before we come to kill it: once more.
  for (int attempt = 0; attempt < 10 && found.status == IBV_WC_SUCCESS; ++attempt) {
    auto host = Host::helper();
    Side a(Host::here());
    Side b(host);
    Links links = links_between(a, b);
    links.a.timeout = 13;
    links.a.retry_cnt = 1;
    connect(a, b, links);
    const Buffer from = a.add_buffer(512 << 20);
    const Buffer to = b.add_buffer(512 << 20);
    ASSERT_EQ(0, a.post_send(rdma(IBV_WR_RDMA_WRITE, 1, {from.all()}, to)));
    host->kill();
    found = a.next(Queue::kSend);
  }
  EXPECT_EQ(IBV_WC_RETRY_EXC_ERR, found.status) << ibv_wc_status_str(found.status);
}

// Memory of a killed process can't be written by who takes its number: another helper gets other slots,
// other keys; the old connection stays dead.
TEST_F(LostPeer, SuccessorIsAStranger) {
  set(13, 1);
  helper_->kill();
  auto next = Host::helper();
  Side c(next);
  const Buffer buffer = c.add_buffer(65536);
  c.fill(buffer, 4);
  ASSERT_EQ(0, a_.post_send(rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 4096)}, remote_)));
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
  EXPECT_EQ(-1, c.mismatch(buffer, 0, 65536, 4));
  // And the survivor can be connected to it.
  ASSERT_EQ(0, a_.to_state(IBV_QPS_RESET));
  connect(a_, c);
  ASSERT_EQ(0, a_.post_send(rdma(IBV_WR_RDMA_READ, 2, {local_.piece(0, 4096)}, buffer)));
  EXPECT_TRUE(next_is(a_, Queue::kSend, 2, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, a_.mismatch(local_, 0, 4096, 4));
}

// One-sided means without the other: a stopped process can be read and written, and its receives filled.
TEST_F(LostPeer, StoppedPeerIsStillReadAndWritten) {
  if (over_wire()) GTEST_SKIP() << "what comes by the network is taken in by the process itself";
  set(18, 7);
  a_.fill(local_, 7);
  b_.set_word(shared_, 60000, 41);
  for (const uint64_t wr_id : {11, 12}) ASSERT_EQ(0, b_.post_receive(wr_id, {remote_.piece(40000, 20000)}));
  helper_->stop();
  ASSERT_EQ(0, a_.post_sends({rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 64)}, remote_),
                              rdma(IBV_WR_RDMA_WRITE, 2, {local_.piece(0, 20000)}, remote_, 64),
                              rdma(IBV_WR_RDMA_WRITE, 3, {local_.piece(0, 20000)}, shared_),
                              rdma(IBV_WR_RDMA_READ, 4, {local_.piece(30000, 20000)}, remote_, 64),
                              fetch_add(5, local_.piece(60000, 8), shared_, 60000, 1),
                              send_of(6, {local_.piece(0, 64)}), send_of(7, {local_.piece(0, 20000)})})
                   .error);
  const Completions done = a_.poll(Queue::kSend, 7, Wait(5000));
  EXPECT_EQ(7, done.count);
  for (int i = 0; i < done.count; ++i)
    EXPECT_EQ(IBV_WC_SUCCESS, done.list.at(static_cast<size_t>(i)).status) << i;
  EXPECT_EQ(-1, a_.mismatch(local_, 30000, 20000, 7));
  EXPECT_EQ(41u, a_.word(local_, 60000));
  helper_->go_on();
  EXPECT_TRUE(next_is(b_, Queue::kReceive, 11, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b_, Queue::kReceive, 12, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b_.mismatch(remote_, 0, 64, 7));
  EXPECT_EQ(-1, b_.mismatch(remote_, 64, 20000, 7));
  EXPECT_EQ(-1, b_.mismatch(shared_, 0, 20000, 7));
  EXPECT_EQ(42u, b_.word(shared_, 60000));
}

// What only its owner can do waits; stopped for longer than the retries last, the request fails.
TEST_F(LostPeer, StoppedPeerCannotRunAtomicsOnPrivateMemory) {
  set(13, 1);
  helper_->stop();
  ASSERT_EQ(0, a_.post_send(fetch_add(1, local_.piece(0, 8), remote_, 0, 1)));
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
  helper_->go_on();
  EXPECT_TRUE(state_is(b_, IBV_QPS_RTS));
}

// A stopped process delays nobody else.
TEST_F(LostPeer, StoppedPeerDelaysOnlyItself) {
  set(18, 7);
  auto other = Host::helper();
  Side c(Host::here());
  Side d(other);
  connect(c, d);
  const Buffer from = c.add_buffer(4096);
  const Buffer to = d.add_buffer(4096);
  helper_->stop();
  ASSERT_EQ(0, a_.post_send(fetch_add(1, local_.piece(0, 8), remote_, 0, 1)));
  const auto begin = Clock::now();
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(0, c.post_send(fetch_add(i, from.piece(0, 8), to, 0, 1)));
    EXPECT_TRUE(next_is(c, Queue::kSend, i, IBV_WC_SUCCESS));
  }
  EXPECT_LT(Clock::now() - begin, Wait(2000));
  helper_->go_on();
  EXPECT_TRUE(next_is(a_, Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_EQ(100u, d.word(to));
}

}  // namespace
}  // namespace verbena::rc
