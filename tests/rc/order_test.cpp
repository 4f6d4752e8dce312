// The order of completions in one queue: a request ends before the answer to it comes, as adapters have it
// and many a program takes for granted.
#include <thread>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kRoundTrips = 1000;
constexpr uint64_t kLongest = 100'000;

class OrderTest : public PairTest {
 protected:
  void SetUp() override {
    open_connected({.one_queue = true}, {.one_queue = true});
    out_ = a().add_buffer(kLongest);
    in_ = a().add_buffer(kLongest);
    there_ = b().add_buffer(kLongest);
  }

  void expect_order(uint64_t count, uint64_t length, Answerer answerer) {
    if (HasFailure()) return;
    SCOPED_TRACE(length);
    constexpr uint64_t kReceives = 8;
    for (uint64_t i = 0; i < kReceives; ++i) ASSERT_EQ(0, b().post_receive(0, first_of(there_, length)));
    uint64_t answered = 0;
    std::thread other([&] { answered = b().answer(count, there_, length, answerer); });
    const uint64_t inverted = ask(count, length);
    other.join();
    EXPECT_EQ(count, answered);
    EXPECT_EQ(0u, inverted) << "of " << count;
    // For the next length.
    ASSERT_EQ(0, b().to_state(IBV_QPS_RESET));
    ASSERT_EQ(0, a().to_state(IBV_QPS_RESET));
    connect();
  }

 private:
  static Pieces first_of(const Buffer& buffer, uint64_t length) {
    return length == 0 ? Pieces{} : Pieces{buffer.piece(0, length)};
  }

  // Sends one message after the other, each answered by the other end; how often the answer was there first.
  // Stops when something fails.
  uint64_t ask(uint64_t count, uint64_t length) {
    uint64_t inverted = 0;
    for (uint64_t i = 0; i < count && !HasFailure(); ++i) {
      EXPECT_EQ(0, a().post_receive(2 * i + 1, first_of(in_, length)));
      EXPECT_EQ(0, a().post_send(send_of(2 * i, first_of(out_, length))));
      const Completions both = a().poll(Queue::kSend, 2);
      EXPECT_EQ(2, both.count) << i;
      for (int k = 0; k < both.count; ++k) EXPECT_EQ(IBV_WC_SUCCESS, both.list.at(k).status) << i;
      if (both.list[0].wr_id != 2 * i) ++inverted;
    }
    return inverted;
  }

  Buffer out_;
  Buffer in_;
  Buffer there_;
};
RC_IN_BOTH(OrderTest);

// Its answer may leave while the thread that polls is still at work on what came.
TEST_P(OrderTest, WhereAnotherThreadThanThePollingOneAnswers) {
  for (const uint64_t length : {8, 0, 3000}) expect_order(kRoundTrips, length, Answerer::kOtherThread);
}

// Messages of one packet, which an acknowledgement may follow in the same datagram; empty ones, whose packet
// is shorter than that; and those of several packets, the last of which is shorter than the others.
TEST_P(OrderTest, WhereThePollingThreadAnswers) {
  for (const uint64_t length : {8, 0, 3000, 100'000})
    expect_order(kRoundTrips / (1 + length / 1024), length, Answerer::kPoller);
}

}  // namespace
}  // namespace verbena::rc
