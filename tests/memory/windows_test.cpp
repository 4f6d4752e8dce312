// Memory windows: what they open, what they don't, and how they are bound, rebound and taken back.
#include <thread>

#include "window_pair.hpp"

namespace verbena::rc {
namespace {

class WindowsTest : public WindowPair {};
RC_IN_BOTH(WindowsTest);

TEST_P(WindowsTest, OpenTheirRangeByTheirOwnKey) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2})
    for (const auto backing : {Backing::kPrivate, Backing::kShared}) {
      prepare(backing);
      const Window window = bound(type, 4096, 8192);
      const uint64_t first = memory_.address + 4096;
      a().fill(local_, 7);
      EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, first, 8192)));
      EXPECT_EQ(-1, b().mismatch(memory_, 4096, 8192, 7));
      b().fill(memory_, 4096, 100, 8);
      EXPECT_TRUE(works(with_key(IBV_WR_RDMA_READ, window.rkey, first + 50, 50)));
      b().set_word(memory_, 4104, 41);
      EXPECT_TRUE(works(with_key(IBV_WR_ATOMIC_FETCH_AND_ADD, window.rkey, first + 8, 8)));
      EXPECT_EQ(41u, a().word(local_));
    }
}

TEST_P(WindowsTest, EndWhereTheyEnd) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    prepare();
    const Window window = bound(type, 4096, 8192);
    const uint64_t first = memory_.address + 4096;
    EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, first + 8191, 1)));
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, first + 8191, 2)));
    reconnect();
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_READ, window.rkey, first - 1, 2)));
  }
}

TEST_P(WindowsTest, AllowWhatTheyWereBoundFor) {
  const std::pair<unsigned, ibv_wr_opcode> rights[] = {
      {IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE},
      {IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ},
      {IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD}};
  prepare();
  for (const auto& [access, allowed] : rights)
    for (const auto& [other, opcode] : rights) {
      const Window window = bound(IBV_MW_TYPE_1, 0, 4096, access);
      const SendOrder wanted = with_key(opcode, window.rkey, memory_.address, 8);
      if (opcode == allowed) {
        EXPECT_TRUE(works(wanted)) << access << " " << opcode;
      } else {
        EXPECT_TRUE(is_refused(wanted)) << access << " " << opcode;
        reconnect();
      }
    }
}

TEST_P(WindowsTest, CountFromZeroIfTold) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    prepare();
    const Window window = bound(type, 1000, 500, kAllRemote | IBV_ACCESS_ZERO_BASED);
    a().fill(local_, 3);
    EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, 0, 500)));
    EXPECT_EQ(-1, b().mismatch(memory_, 1000, 500, 3));
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, 499, 2)));
    reconnect();
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address + 1000, 8)));
  }
}

// The region itself stays closed: it was registered for binding only.
TEST_P(WindowsTest, TheRegionsOwnKeyOpensNothing) {
  prepare();
  (void)bound(IBV_MW_TYPE_1, 0, kRegion);
  EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, memory_.rkey, memory_.address, 8)));
}

TEST_P(WindowsTest, Type1IsBoundAnewAndTheOldKeyIsGone) {
  prepare();
  const Window first = bound(IBV_MW_TYPE_1, 0, 4096);
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, first.rkey, memory_.address, 8)));
  const Window second = bind(order(first, 8192, 4096));
  EXPECT_NE(first.rkey, second.rkey);
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, second.rkey, memory_.address + 8192, 8)));
  EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, first.rkey, memory_.address, 8)));
}

TEST_P(WindowsTest, Type1IsUnboundByLengthZero) {
  prepare();
  const Window window = bound(IBV_MW_TYPE_1, 0, 4096);
  const Window unbound = bind({.window = window.id, .access = 0});
  for (const uint32_t rkey : {window.rkey, unbound.rkey}) {
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, rkey, memory_.address, 8)));
    reconnect();
  }
  EXPECT_EQ(0, b().deregister(memory_)) << "nothing is bound to it any more";
}

// A bind is in the order of the queue: what is sent behind it may tell the peer the key.
TEST_P(WindowsTest, AreBoundInTheirTurn) {
  prepare();
  const Buffer text = b().add_buffer(64);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(0, a().post_receive(5, {local_.piece(128, 64)}));
    const Window window = b().add_window(IBV_MW_TYPE_2);
    for (int k = 0; k < 3; ++k)  // something before it
      ASSERT_EQ(0, b().post_send({.wr_id = 2,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .remote_address = local_.address,
                                  .rkey = local_.rkey,
                                  .pieces = {text.piece(0, 8)}}));
    const Window made = b().bind(order(window, 0, 4096));
    b().set_word(text, 8, made.rkey);
    ASSERT_EQ(0, b().post_send(send_of(3, {text.piece(8, 8)})));
    ASSERT_TRUE(next_is(a(), Queue::kReceive, 5, IBV_WC_SUCCESS));
    const auto rkey = static_cast<uint32_t>(a().word(local_, 128));
    ASSERT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, rkey, memory_.address, 8)));
    for (const uint64_t wr_id : {2, 2, 2, 9, 3})
      ASSERT_TRUE(next_is(b(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
    ASSERT_EQ(0, b().remove_window(made));
  }
}

TEST_P(WindowsTest, AnUnsignalledBindCompletesSilently) {
  prepare();
  BindOrder silent = order(b().add_window(IBV_MW_TYPE_1), 0, 4096);
  silent.flags = 0;
  const Window window = b().bind(silent);
  EXPECT_TRUE(nothing_comes(b(), Queue::kSend));
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
}

TEST_P(WindowsTest, DeallocationClosesThem) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    prepare();
    const Window window = bound(type, 0, 4096);
    EXPECT_EQ(0, b().remove_window(window));
    EXPECT_TRUE(is_refused(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
  }
}

TEST_P(WindowsTest, ARegionWithWindowsStays) {
  prepare();
  const Window one = bound(IBV_MW_TYPE_1, 0, 4096);
  const Window two = bound(IBV_MW_TYPE_2, 0, 4096);
  EXPECT_EQ(EBUSY, b().deregister(memory_));
  EXPECT_EQ(0, b().remove_window(one));
  EXPECT_EQ(EBUSY, b().deregister(memory_));
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, two.rkey, memory_.address, 8)));
  EXPECT_EQ(0, b().remove_window(two));
  EXPECT_EQ(0, b().deregister(memory_));
}

// Taken back while a peer writes through it, again and again: nothing is written once it is closed.
TEST_P(WindowsTest, NothingIsWrittenOnceTheyAreClosed) {
  prepare();
  for (int round = 0; round < 10; ++round) {
    const Window window = bound(IBV_MW_TYPE_1, 0, kRegion);
    a().fill(local_, round);
    for (int i = 0; i < 8; ++i)
      ASSERT_EQ(0, a().post_send(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, kRegion)));
    ASSERT_EQ(0, b().remove_window(window));
    b().fill(memory_, 1000 + round);
    const Completions done = a().poll(Queue::kSend, 8);
    ASSERT_EQ(8, done.count);
    EXPECT_EQ(-1, b().mismatch(memory_, 0, kRegion, 1000 + round));
    reconnect();
    while (b().next_event(kNow).came) {
    }
  }
}

}  // namespace
}  // namespace verbena::rc
