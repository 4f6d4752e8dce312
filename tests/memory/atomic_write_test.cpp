// ATOMIC WRITE: 8 bytes that nobody sees in part.
#include <atomic>
#include <thread>

#include "window_pair.hpp"

namespace verbena::rc {
namespace {

class AtomicWriteTest : public WindowPair {
 protected:
  void prepare_target(Backing backing, int access = kAllAccess) {
    open_connected();
    local_ = a().add_buffer(64);
    memory_ = b().add_buffer({.length = 4096, .access = access, .backing = backing});
  }
  [[nodiscard]] SendOrder write_at(uint64_t offset, uint64_t length = 8) const {
    return with_key(IBV_WR_ATOMIC_WRITE, memory_.rkey, memory_.address + offset, length);
  }
};
RC_IN_BOTH(AtomicWriteTest);

TEST_P(AtomicWriteTest, WritesAWord) {
  for (const auto backing : {Backing::kPrivate, Backing::kShared}) {
    prepare_target(backing);
    for (const unsigned flags : {0u, static_cast<unsigned>(IBV_SEND_INLINE)})
      for (const uint64_t offset : {0, 8, 4088}) {
        a().set_word(local_, 0, 0x0102030405060708 + offset);
        SendOrder wanted = write_at(offset);
        wanted.flags |= flags;
        ASSERT_EQ(0, a().post_send(wanted));
        const ibv_wc completion = a().next(Queue::kSend);
        EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
        EXPECT_EQ(IBV_WC_ATOMIC_WRITE, completion.opcode);
        EXPECT_EQ(0x0102030405060708 + offset, b().word(memory_, offset));
      }
  }
}

// It needs the right to write, of region and queue pair, and not the one for atomics.
TEST_P(AtomicWriteTest, NeedsTheRightToWrite) {
  prepare_target(Backing::kPrivate, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_TRUE(works(write_at(0)));
  memory_ = b().add_buffer({.length = 64, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC});
  EXPECT_TRUE(is_refused(write_at(0)));
  open();
  links_.b.access = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;
  connect();
  local_ = a().add_buffer(64);
  memory_ = b().add_buffer(64);
  EXPECT_TRUE(is_refused(write_at(0), IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR));
}

TEST_P(AtomicWriteTest, RefusesWhatIsNoWord) {
  prepare_target(Backing::kPrivate);
  EXPECT_TRUE(is_refused(write_at(4), IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR));
  reconnect();
  EXPECT_TRUE(is_refused(write_at(4096)));
  reconnect();
  for (const uint64_t length : {0, 4, 16}) {
    ASSERT_EQ(0, a().post_send(write_at(0, length)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_LOC_LEN_ERR));
    reconnect();
  }
}

// In order: a write before it is there when the word is, and the word is there for what follows.
TEST_P(AtomicWriteTest, InOrderWithOthers) {
  prepare_target(Backing::kPrivate);
  for (uint64_t i = 1; i <= 50; ++i) {
    a().set_word(local_, 0, i);
    SendOrder data = with_key(IBV_WR_RDMA_WRITE, memory_.rkey, memory_.address + 64, 8);
    SendOrder back = with_key(IBV_WR_RDMA_READ, memory_.rkey, memory_.address, 8);
    back.pieces = {local_.piece(8, 8)};
    ASSERT_EQ(0, a().post_sends({data, write_at(0), back}).error);
    for (int k = 0; k < 3; ++k) ASSERT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
    EXPECT_EQ(i, a().word(local_, 8));
    EXPECT_EQ(i, b().word(memory_, 64));
  }
}

// Seen by the target's processor it is the one value or the other, never a mixture.
TEST_P(AtomicWriteTest, IsNeverSeenInPart) {
  for (const auto backing : {Backing::kPrivate, Backing::kShared}) {
    prepare_target(backing);
    std::atomic<bool> done = false;
    bool mixed = false;
    std::thread reader([&] {
      while (!done.load()) {
        const uint64_t seen = b().word(memory_);
        mixed |= seen != 0 && seen != UINT64_MAX;
      }
    });
    for (uint64_t i = 0; i < 200; ++i) {
      a().set_word(local_, 0, i % 2 == 0 ? UINT64_MAX : 0);
      EXPECT_TRUE(works(write_at(0)));
    }
    done.store(true);
    reader.join();
    EXPECT_FALSE(mixed);
  }
}

}  // namespace
}  // namespace verbena::rc
