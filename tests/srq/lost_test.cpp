// A requester's process is killed in the middle of a SEND: its receive goes back to the queue, nobody hangs.
#include <unistd.h>

#include "hub.hpp"

namespace verbena::srq {
namespace {

using rc::Buffer;
using rc::Host;
using rc::Queue;
using rc::send_of;
using rc::Side;

constexpr uint32_t kLong = 32 << 20;
constexpr uint64_t kReceives = 4;

TEST(Lost, KilledInTheMiddleOfASend) {
  Hub hub({.bytes = kLong});
  Side survivor(Host::helper());
  ibv_qp* living = hub.add_qp();
  hub.connect(living, survivor);
  const Buffer own = survivor.add_buffer(4096);
  survivor.fill(own, 9);
  for (uint64_t i = 0; i < kReceives; ++i) ASSERT_EQ(0, hub.post_shared(i, 0, kLong));
  uint64_t posted = kReceives;
  for (unsigned round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    auto host = Host::helper();
    Side victim(host);
    ibv_qp* dying = hub.add_qp();
    hub.connect(dying, victim);
    const Buffer buffer = victim.add_buffer(kLong);
    // Several, so that it surely dies inside one; a poll keeps the wire going.
    for (uint64_t n = 0; n < 2; ++n) ASSERT_EQ(0, victim.post_send(send_of(n, {buffer.all()})));
    ::usleep(200 * (round % 5));
    host->kill();
    // What it had finished counts. In the end each receive is posted again and can be used by others.
    for (;;) {
      const ibv_wc got = hub.next(Wait(50));
      if (got.status == rc::kNone) break;
      ASSERT_EQ(IBV_WC_SUCCESS, got.status);
      ASSERT_EQ(dying->qp_num, got.qp_num);
      --posted;
    }
    hub.destroy(dying);  // over the wire nobody knows that it is dead
    while (posted < kReceives) {
      ASSERT_EQ(0, hub.post_shared(50 + posted, 0, kLong));
      ++posted;
    }
    for (uint64_t n = 0; n < kReceives; ++n) {
      ASSERT_EQ(0, survivor.post_send(send_of(n, {own.all()})));
      const ibv_wc got = hub.next();
      ASSERT_EQ(IBV_WC_SUCCESS, got.status);
      ASSERT_EQ(living->qp_num, got.qp_num);
      ASSERT_EQ(-1, hub.mismatch(0, 4096, 9));
      ASSERT_TRUE(rc::next_is(survivor, Queue::kSend, n, IBV_WC_SUCCESS));
    }
    for (uint64_t i = 0; i < kReceives; ++i) ASSERT_EQ(0, hub.post_shared(i, 0, kLong));
  }
  EXPECT_TRUE(hub.nothing_comes());
}

// The dead one's receive is wanted by somebody who sleeps.
TEST(Lost, WhoWaitsForItsReceiveGoesOn) {
  if (rc::over_wire()) GTEST_SKIP() << "from afar the dead are only silent";
  for (unsigned round = 0; round < 5; ++round) {
    Hub hub({.bytes = kLong});
    auto host = Host::helper();
    Side victim(host);
    Side waiting(Host::helper());
    ibv_qp* dying = hub.add_qp();
    ibv_qp* living = hub.add_qp();
    hub.connect(dying, victim);
    hub.connect(living, waiting);
    const Buffer buffer = victim.add_buffer(kLong);
    const Buffer own = waiting.add_buffer(64);
    ASSERT_EQ(0, hub.post_shared(1, 0, kLong));
    ASSERT_EQ(0, victim.post_send(send_of(1, {buffer.all()})));
    ASSERT_EQ(0, waiting.post_send(send_of(2, {own.all()})));
    host->kill();
    ibv_wc got = hub.next();
    ASSERT_EQ(IBV_WC_SUCCESS, got.status);
    if (got.qp_num == dying->qp_num) {  // it had come through
      ASSERT_EQ(0, hub.post_shared(1, 0, kLong));
      got = hub.next();
    }
    EXPECT_EQ(living->qp_num, got.qp_num);
    EXPECT_EQ(IBV_WC_SUCCESS, got.status);
  }
}

}  // namespace
}  // namespace verbena::srq
