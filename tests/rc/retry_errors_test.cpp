// Peers that don't answer (RETRY_EXC) and peers that have no receive (RNR_RETRY_EXC), with their timers.
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

using Clock = std::chrono::steady_clock;

// 4.096 us * 2^timeout, for each try.
constexpr uint8_t kTimeout = 13;  // 33.6 ms
constexpr uint8_t kRetries = 2;
constexpr std::chrono::microseconds kSilenceLasts(4096 * (1 << kTimeout) / 1000 * (kRetries + 1));
// A loaded machine is late, but not by this much.
constexpr Wait kSlack(3000);
// IBA's codes of the RNR timer.
constexpr uint8_t kRnr655ms = 0;
constexpr uint8_t kRnr41ms = 24;
constexpr uint8_t kRnr10us = 1;

class RetryErrors : public PairTest {
 protected:
  void set() {
    open();
    links_.a.timeout = kTimeout;
    links_.a.retry_cnt = kRetries;
  }
  void add_buffers() {
    local_ = a().add_buffer(65536);
    remote_ = b().add_buffer(65536);
    b().fill(remote_, 2);
  }
  void connect_all() {
    connect();
    add_buffers();
  }

  // Posts them; how long it took until the first ended so.
  Clock::duration lasts(const Orders<SendOrder>& orders, ibv_wc_status status) {
    const auto begin = Clock::now();
    EXPECT_EQ(0, a().post_sends(orders).error);
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, status));
    return Clock::now() - begin;
  }
  // All that is posted fails: the first in its time, the rest with it.
  void expect_silence(SendOrder order) {
    ASSERT_EQ(0, a().post_receive(21, {local_.all()}));
    order.wr_id = 1;
    const auto lasted = lasts({order, send_of(2, {})}, IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(lasted, kSilenceLasts);
    EXPECT_LT(lasted, kSilenceLasts + kSlack);
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kReceive, 21, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(no_event(a(), kNow));
  }
  void expect_peer_untouched(ibv_qp_state state) {
    EXPECT_TRUE(state_is(b(), state));
    EXPECT_TRUE(no_event(b(), kNow));
    EXPECT_TRUE(nothing_comes(b(), Queue::kReceive, kNow));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, 65536, 2));
  }
  [[nodiscard]] SendOrder small_send() const { return send_of(1, {local_.piece(0, 64)}); }
  [[nodiscard]] SendOrder write() const { return rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 64)}, remote_); }

  Buffer local_;
  Buffer remote_;
};
RC_IN_BOTH(RetryErrors);

TEST_P(RetryErrors, PeerInReset) {
  set();
  add_buffers();
  ASSERT_EQ(0, a().to_init(links_.a));
  ASSERT_EQ(0, a().to_rtr(links_.a));
  ASSERT_EQ(0, a().to_rts(links_.a));
  expect_silence(write());
  expect_peer_untouched(IBV_QPS_RESET);
}

TEST_P(RetryErrors, PeerInInit) {
  set();
  add_buffers();
  ASSERT_EQ(0, b().to_init(links_.b));
  ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
  ASSERT_EQ(0, a().to_init(links_.a));
  ASSERT_EQ(0, a().to_rtr(links_.a));
  ASSERT_EQ(0, a().to_rts(links_.a));
  expect_silence(small_send());
  expect_peer_untouched(IBV_QPS_INIT);
}

TEST_P(RetryErrors, PeerInError) {
  set();
  connect_all();
  ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
  expect_silence(small_send());
  expect_peer_untouched(IBV_QPS_ERR);
}

TEST_P(RetryErrors, PeerInErrorForEveryOperation) {
  const auto orders = [&] {
    return std::vector<SendOrder>{rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 20000)}, remote_),
                                  rdma(IBV_WR_RDMA_READ, 1, {local_.piece(0, 64)}, remote_),
                                  rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, {local_.piece(0, 8)}, remote_),
                                  fetch_add(1, local_.piece(0, 8), remote_, 0, 1),
                                  send_of(1, {local_.piece(0, 20000)})};
  };
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    set();
    links_.a.retry_cnt = 0;
    connect_all();
    ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
    ASSERT_EQ(0, a().post_send(orders().at(i)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
    expect_peer_untouched(IBV_QPS_ERR);
  }
}

TEST_P(RetryErrors, PeerResetAfterTraffic) {
  set();
  connect_all();
  ASSERT_EQ(0, b().post_receive(11, {local_.piece(0, 0)}));
  ASSERT_EQ(0, a().post_send(send_of(1, {})));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  ASSERT_EQ(0, b().to_state(IBV_QPS_RESET));
  expect_silence(write());
  expect_peer_untouched(IBV_QPS_RESET);
}

TEST_P(RetryErrors, WrongPsn) {
  if (over_wire()) GTEST_SKIP() << "on a wire a PSN of the past is a duplicate, which is acknowledged";
  for (const uint32_t psn : {78u, 76u, 0u, 0xffffffu}) {
    set();
    links_.a.sq_psn = psn;
    connect_all();
    ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
    expect_silence(small_send());
    expect_peer_untouched(IBV_QPS_RTS);
    if (HasFailure()) return;
  }
}

TEST_P(RetryErrors, PeerExpectsSomebodyElse) {
  if (over_wire()) GTEST_SKIP() << "an RC packet doesn't say from which queue pair it comes";
  for (const bool other_gid : {false, true}) {
    set();
    if (other_gid)
      links_.b.peer.raw[15] ^= 1;
    else
      links_.b.peer_qpn ^= 0x40;
    ASSERT_EQ(0, b().to_init(links_.b));
    const int error = b().to_rtr(links_.b);
    // An address that isn't of this host may be refused until there is a path to other hosts.
    if (other_gid && error == EHOSTUNREACH) continue;
    ASSERT_EQ(0, error);
    ASSERT_EQ(0, b().to_rts(links_.b));
    ASSERT_EQ(0, a().to_init(links_.a));
    ASSERT_EQ(0, a().to_rtr(links_.a));
    ASSERT_EQ(0, a().to_rts(links_.a));
    add_buffers();
    ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
    expect_silence(small_send());
    expect_peer_untouched(IBV_QPS_RTS);
  }
}

TEST_P(RetryErrors, NobodyHasThatNumber) {
  // In a slot that nobody has, the agent's, the ones that mean something else.
  for (const uint32_t qpn : {0xfdfffeu, 0x000017u, 0x000001u, 0x000000u, 0xffffffu}) {
    SCOPED_TRACE(qpn);
    set();
    links_.a.peer_qpn = qpn;
    connect_all();
    ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
    expect_silence(small_send());
    expect_peer_untouched(IBV_QPS_RTS);
    if (HasFailure()) return;
  }
}

// The peer's process is there, but never had a queue pair of that number.
TEST_P(RetryErrors, SendToANumberThatThePeerNeverHad) {
  set();
  links_.a.peer_qpn ^= 0x8000;
  connect_all();
  ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
  expect_silence(small_send());
  expect_peer_untouched(IBV_QPS_RTS);
}

TEST_P(RetryErrors, AccessToANumberThatThePeerNeverHad) {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    set();
    links_.a.peer_qpn ^= 0x8000;
    connect_all();
    expect_silence(rdma(opcode, 1, {local_.piece(0, 8)}, remote_));
    expect_peer_untouched(IBV_QPS_RTS);
  }
}

TEST_P(RetryErrors, NumberOfADestroyedQueuePair) {
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
    set();
    connect_all();
    ASSERT_EQ(0, b().destroy_qp());
    expect_silence(rdma(opcode, 1, {local_.piece(0, 8)}, remote_));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, 65536, 2));
  }
}

// A peer that comes up while the retries last has lost nothing.
TEST_P(RetryErrors, PeerThatComesLate) {
  open();
  add_buffers();
  a().fill(local_, 5);
  ASSERT_EQ(0, a().to_init(links_.a));
  ASSERT_EQ(0, a().to_rtr(links_.a));
  ASSERT_EQ(0, a().to_rts(links_.a));
  ASSERT_EQ(0,
            a().post_sends({small_send(), rdma(IBV_WR_RDMA_WRITE, 2, {local_.piece(0, 20000)}, remote_, 64)})
                .error);
  EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
  ASSERT_EQ(0, b().to_init(links_.b));
  ASSERT_EQ(0, b().post_receive(11, {remote_.piece(0, 64)}));
  ASSERT_EQ(0, b().to_rtr(links_.b));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, b().mismatch(remote_, 0, 64, 5));
  EXPECT_EQ(-1, b().mismatch(remote_, 64, 20000, 5));
}

// Timeout 0 waits for ever: only the program ends it.
TEST_P(RetryErrors, WithoutTimeout) {
  set();
  links_.a.timeout = 0;
  connect_all();
  ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
  ASSERT_EQ(0, a().post_send(small_send()));
  EXPECT_EQ(kNone, a().next(Queue::kSend, Wait(400)).status);
  EXPECT_TRUE(state_is(a(), IBV_QPS_RTS));
  ASSERT_EQ(0, a().to_state(IBV_QPS_ERR));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_WR_FLUSH_ERR));
}

// ---- No receive. ----

TEST_P(RetryErrors, NoReceive) {
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM})
    for (const uint64_t length : {0, 64, 20000}) {
      // Its immediate is in the last packet: what came before is written by then.
      if (over_wire() && opcode == IBV_WR_RDMA_WRITE_WITH_IMM && length == 20000) continue;
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << length << " bytes");
      set();
      links_.a.rnr_retry = 2;
      links_.b.min_rnr_timer = kRnr10us;
      connect_all();
      ASSERT_EQ(0, a().post_receive(21));
      ASSERT_EQ(0,
                a().post_sends({rdma(opcode, 1, {local_.piece(0, length)}, remote_), send_of(2, {})}).error);
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_RNR_RETRY_EXC_ERR));
      EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
      EXPECT_TRUE(next_is(a(), Queue::kReceive, 21, IBV_WC_WR_FLUSH_ERR));
      expect_peer_untouched(IBV_QPS_RTS);
      if (HasFailure()) return;
    }
}

// rnr_retry is how often it is sent again, each time after the responder's timer.
TEST_P(RetryErrors, RnrTimerTimesRetries) {
  for (const uint8_t retries : {uint8_t{1}, uint8_t{3}}) {
    SCOPED_TRACE(static_cast<int>(retries));
    set();
    links_.a.rnr_retry = retries;
    links_.b.min_rnr_timer = kRnr41ms;
    connect_all();
    const auto lasted = lasts({small_send()}, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_GE(lasted, retries * std::chrono::microseconds(40960));
    EXPECT_LT(lasted, retries * Wait(41) + kSlack);
  }
}

// Without retries the first "not ready" is the last: there is no wait at all.
TEST_P(RetryErrors, NoRnrRetryFailsAtOnce) {
  set();
  links_.a.rnr_retry = 0;
  links_.b.min_rnr_timer = kRnr655ms;
  connect_all();
  EXPECT_LT(lasts({small_send()}, IBV_WC_RNR_RETRY_EXC_ERR), Wait(500));
}

// 7 is for ever, and the receive wakes the sender: it doesn't sleep the timer out.
TEST_P(RetryErrors, RnrForEverUntilAReceiveIsPosted) {
  if (over_wire()) GTEST_SKIP() << "a wire has no message that says that a receive was posted";
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM})
    for (const uint64_t length : {64, 20000}) {
      set();
      links_.b.min_rnr_timer = kRnr655ms;
      connect_all();
      ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local_.piece(0, length)}, remote_)));
      EXPECT_EQ(kNone, a().next(Queue::kSend, Wait(100)).status);
      const auto begin = Clock::now();
      ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
      EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
      EXPECT_LT(Clock::now() - begin, Wait(400));
      EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS));
    }
}

TEST_P(RetryErrors, RnrOutlastsManyTimers) {
  set();
  links_.b.min_rnr_timer = kRnr10us;
  connect_all();
  ASSERT_EQ(0, a().post_send(small_send()));
  EXPECT_EQ(kNone, a().next(Queue::kSend, Wait(300)).status);
  ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
}

// From "not ready" to silence: the timeouts begin anew, all of them.
TEST_P(RetryErrors, PeerThatFailsWhileTheSenderWaitsForAReceive) {
  for (const uint8_t retries : {uint8_t{0}, kRetries}) {
    SCOPED_TRACE(static_cast<int>(retries));
    set();
    links_.a.retry_cnt = retries;
    links_.b.min_rnr_timer = kRnr10us;
    connect_all();
    ASSERT_EQ(0, a().post_send(small_send()));
    EXPECT_TRUE(nothing_comes(a(), Queue::kSend));
    const auto begin = Clock::now();
    ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
    EXPECT_GE(Clock::now() - begin, kSilenceLasts / (kRetries + 1) * (retries + 1));
  }
}

// A peer whose attributes change is there all the time.
TEST_P(RetryErrors, ChangesAtThePeerAreNoSilence) {
  set();
  links_.a.retry_cnt = 0;
  links_.b.min_rnr_timer = kRnr10us;
  connect_all();
  ASSERT_EQ(0, a().post_send(small_send()));
  for (uint8_t i = 0; i < 200; ++i) {
    ASSERT_EQ(0, b().set_min_rnr_timer(static_cast<uint8_t>(1 + i % 3)));
    ASSERT_TRUE(nothing_comes(a(), Queue::kSend, kNow));
  }
  ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
}

// Nobody polls at the sender's: its completion comes all the same, and wakes it.
TEST_P(RetryErrors, SleepingSenderIsWokenByAReceive) {
  if (over_wire()) GTEST_SKIP() << "a wire has no message that says that a receive was posted";
  open({.channel = true});
  links_.b.min_rnr_timer = kRnr655ms;
  connect_all();
  ASSERT_EQ(0, a().arm(Queue::kSend));
  ASSERT_EQ(0, a().post_send(small_send()));
  EXPECT_FALSE(a().next_channel_event(kMoment).came);
  const auto begin = Clock::now();
  ASSERT_EQ(0, b().post_receive(11, {remote_.all()}));
  EXPECT_TRUE(a().next_channel_event().came);
  EXPECT_LT(Clock::now() - begin, Wait(400));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
}

// A sender that nobody polls for fails in time, too.
TEST_P(RetryErrors, SleepingSenderIsWokenByFailure) {
  open({.channel = true});
  links_.a.timeout = kTimeout;
  links_.a.retry_cnt = kRetries;
  connect_all();
  ASSERT_EQ(0, b().to_state(IBV_QPS_ERR));
  ASSERT_EQ(0, a().arm(Queue::kSend, true));  // an error counts as solicited
  const auto begin = Clock::now();
  ASSERT_EQ(0, a().post_send(small_send()));
  EXPECT_TRUE(a().next_channel_event().came);
  EXPECT_GE(Clock::now() - begin, kSilenceLasts);
  EXPECT_LT(Clock::now() - begin, kSilenceLasts + kSlack);
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_RETRY_EXC_ERR));
}

// Receives that run out in the middle: what had one is delivered, in order, and the rest follows.
TEST_P(RetryErrors, ReceivesThatComeInDrops) {
  set();
  connect_all();
  for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(0, a().post_send(send_of(i, {local_.piece(0, i * 500)})));
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(0, b().post_receive(100 + i, {remote_.all()}));
    EXPECT_TRUE(next_is(a(), Queue::kSend, i, IBV_WC_SUCCESS));
    const ibv_wc found = b().next(Queue::kReceive);
    EXPECT_EQ(100 + i, found.wr_id);
    EXPECT_EQ(i * 500, found.byte_len);
  }
}

}  // namespace
}  // namespace verbena::rc
