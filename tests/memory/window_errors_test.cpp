// Binds that can't be: refused at once where the call can tell, by IBV_WC_MW_BIND_ERR where only the queue
// can.
#include "window_pair.hpp"

namespace verbena::rc {
namespace {

class WindowErrorsTest : public WindowPair {
 protected:
  // The bind is taken, and fails; it costs b's queue pair.
  void expect_bind_error(const BindOrder& wanted) {
    EXPECT_EQ(0, b().bind(wanted).error);
    EXPECT_TRUE(next_is(b(), Queue::kSend, wanted.wr_id, IBV_WC_MW_BIND_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
    reconnect();
  }
};
RC_IN_BOTH(WindowErrorsTest);

TEST_P(WindowErrorsTest, OutsideTheRegion) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    prepare();
    const Window window = b().add_window(type);
    expect_bind_error(order(window, 0, kRegion + 1));
    expect_bind_error(order(window, kRegion, 1));
    expect_bind_error(order(window, uint64_t{0} - 1, 8));
    (void)bind(order(window, 0, kRegion));  // all of it is fine
  }
}

TEST_P(WindowErrorsTest, ARegionThatDoesntAllowIt) {
  prepare();
  const Window window = b().add_window(IBV_MW_TYPE_2);
  memory_ = b().add_buffer(4096);  // without MW_BIND
  expect_bind_error(order(window, 0, 4096));
  memory_ = b().add_buffer({.length = 4096, .access = IBV_ACCESS_MW_BIND});  // without LOCAL_WRITE
  expect_bind_error(order(window, 0, 4096, IBV_ACCESS_REMOTE_WRITE));
  expect_bind_error(order(window, 0, 4096, IBV_ACCESS_REMOTE_ATOMIC));
  (void)bind(order(window, 0, 4096, IBV_ACCESS_REMOTE_READ));
}

TEST_P(WindowErrorsTest, AnotherDomain) {
  prepare();
  expect_bind_error(order(b().add_window(IBV_MW_TYPE_2, true), 0, 4096));
  memory_ = b().add_buffer({.length = 4096, .access = kBindable, .other_domain = true});
  expect_bind_error(order(b().add_window(IBV_MW_TYPE_2), 0, 4096));
  EXPECT_EQ(EPERM, b().bind(order(b().add_window(IBV_MW_TYPE_1), 0, 4096)).error);
}

TEST_P(WindowErrorsTest, Type2IsBoundOnce) {
  prepare();
  const Window window = bound(IBV_MW_TYPE_2, 0, 4096);
  expect_bind_error(order(window, 0, 4096));
  expect_bind_error(order(b().add_window(IBV_MW_TYPE_2), 0, 0));
}

TEST_P(WindowErrorsTest, RefusedAtOnce) {
  prepare();
  const Window one = b().add_window(IBV_MW_TYPE_1);
  const Window two = b().add_window(IBV_MW_TYPE_2);
  for (const Window& window : {one, two}) {
    BindOrder wanted = order(window, 0, 4096);
    wanted.other_verb = true;  // each type has its own
    EXPECT_EQ(EINVAL, b().bind(wanted).error);
    EXPECT_EQ(EINVAL, b().bind(order(window, 0, 4096, 1 << 16)).error);
    EXPECT_EQ(EINVAL, b().bind(order(window, 0, 4096, IBV_ACCESS_MW_BIND)).error);
  }
  BindOrder wanted = order(two, 0, 4096);
  wanted.rkey = two.rkey + 0x100;  // names something else
  EXPECT_EQ(EINVAL, b().bind(wanted).error);
  wanted = order(two, 0, 4096);
  wanted.buffer = 0;
  EXPECT_EQ(EINVAL, b().bind(wanted).error);
  EXPECT_EQ(EINVAL, b().add_window(static_cast<ibv_mw_type>(3)).error);
  EXPECT_TRUE(nothing_comes(b(), Queue::kSend, kNow));
}

// A window's key is for peers: our own requests can't use it.
TEST_P(WindowErrorsTest, AWindowsKeyIsNoLkey) {
  prepare();
  const Window window = bound(IBV_MW_TYPE_1, 0, 4096);
  ASSERT_EQ(0, b().post_send({.opcode = IBV_WR_RDMA_WRITE,
                              .remote_address = local_.address,
                              .rkey = local_.rkey,
                              .pieces = {ibv_sge{memory_.address, 8, window.rkey}}}));
  EXPECT_TRUE(next_is(b(), Queue::kSend, 1, IBV_WC_LOC_PROT_ERR));
}

// Type 1 is open to every queue pair of the domain, type 2 to the one that bound it.
TEST_P(WindowErrorsTest, Type2IsForOneQueuePair) {
  prepare();
  Side other(there());
  Side from(here_);
  rc::connect(from, other);
  const Window window = bound(IBV_MW_TYPE_2, 0, 4096);
  const Buffer piece = from.add_buffer(64);
  ASSERT_EQ(0, from.post_send({.opcode = IBV_WR_RDMA_WRITE,
                               .remote_address = memory_.address,
                               .rkey = window.rkey,
                               .pieces = {piece.piece(0, 8)}}));
  EXPECT_TRUE(next_is(from, Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(works(with_key(IBV_WR_RDMA_WRITE, window.rkey, memory_.address, 8)));
}

TEST_P(WindowErrorsTest, Type2GoesWithItsQueuePair) {
  prepare();
  (void)bound(IBV_MW_TYPE_2, 0, 4096);
  EXPECT_EQ(EBUSY, b().deregister(memory_));
  EXPECT_EQ(0, b().destroy_qp());
  EXPECT_EQ(0, b().deregister(memory_));
}

}  // namespace
}  // namespace verbena::rc
