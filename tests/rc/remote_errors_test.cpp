// Requests that the responder refuses, cause by cause: what each side's completions, states and events say
// (DESIGN 2.8).
#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 65536;
constexpr uint64_t kSmall = 64;
constexpr uint64_t kLarge = 20000;  // past what travels in a ring
constexpr unsigned kNoRemote = IBV_ACCESS_LOCAL_WRITE;

struct Scene {
  Buffer local;       // the requester's
  Buffer good;        // the responder's, from here on
  Buffer read_only;   // for peers
  Buffer write_only;  // for peers
  Buffer foreign;     // in another protection domain than the queue pair
  Buffer gone;        // deregistered

  [[nodiscard]] Pieces bytes(uint64_t length) const { return {local.piece(0, length)}; }
  [[nodiscard]] ibv_sge result() const { return local.piece(8, 8); }
};

struct Cause {
  const char* name;
  SendOrder (*order)(const Scene& scene);
  ibv_wc_status status;  // the requester's
  ibv_event_type event;  // the responder's
  void (*spoil)(Links& links) = [](Links&) {};
};

SendOrder write_to(const Scene& scene, const Buffer& remote, uint64_t offset, uint64_t length) {
  return rdma(IBV_WR_RDMA_WRITE, 1, scene.bytes(length), remote, offset);
}
SendOrder read_from(const Scene& scene, const Buffer& remote, uint64_t offset, uint64_t length) {
  return rdma(IBV_WR_RDMA_READ, 1, scene.bytes(length), remote, offset);
}
SendOrder with_key(SendOrder order, uint32_t rkey) {
  order.rkey = rkey;
  return order;
}
void deny(Links& links) { links.b.access = kNoRemote; }

constexpr auto kAccess = IBV_WC_REM_ACCESS_ERR;
constexpr auto kAccessEvent = IBV_EVENT_QP_ACCESS_ERR;
constexpr auto kInvalid = IBV_WC_REM_INV_REQ_ERR;
constexpr auto kInvalidEvent = IBV_EVENT_QP_REQ_ERR;

const Cause kCauses[] = {
    // The key.
    {"WriteKeyOfNobody", [](const Scene& s) { return with_key(write_to(s, s.good, 0, kSmall), 0x7fffff01); },
     kAccess, kAccessEvent},
    {"WriteKeyZero", [](const Scene& s) { return with_key(write_to(s, s.good, 0, kSmall), 0); }, kAccess,
     kAccessEvent},
    {"WriteKeyWithAnotherTag",
     [](const Scene& s) { return with_key(write_to(s, s.good, 0, kSmall), s.good.rkey ^ 1); }, kAccess,
     kAccessEvent},
    {"WriteKeyLarge", [](const Scene& s) { return with_key(write_to(s, s.good, 0, kLarge), ~0u); }, kAccess,
     kAccessEvent},
    {"WriteDeregistered", [](const Scene& s) { return write_to(s, s.gone, 0, kSmall); }, kAccess,
     kAccessEvent},
    {"ReadKeyOfNobody", [](const Scene& s) { return with_key(read_from(s, s.good, 0, kSmall), 0x7fffff01); },
     kAccess, kAccessEvent},
    {"ReadDeregisteredLarge", [](const Scene& s) { return read_from(s, s.gone, 0, kLarge); }, kAccess,
     kAccessEvent},
    {"FetchAddDeregistered", [](const Scene& s) { return fetch_add(1, s.result(), s.gone, 0, 1); }, kAccess,
     kAccessEvent},
    {"CompareSwapKeyOfNobody",
     [](const Scene& s) { return with_key(compare_swap(1, s.result(), s.good, 0, 0, 1), 0x7fffff01); },
     kAccess, kAccessEvent},
    // The bounds.
    {"WriteOneBytePastTheEnd", [](const Scene& s) { return write_to(s, s.good, kSize - kSmall + 1, kSmall); },
     kAccess, kAccessEvent},
    {"WriteFarPastTheEnd", [](const Scene& s) { return write_to(s, s.good, 1ull << 40, kSmall); }, kAccess,
     kAccessEvent},
    {"WriteOneByteBefore", [](const Scene& s) { return write_to(s, s.good, ~0ull, kSmall); }, kAccess,
     kAccessEvent},
    {"WriteAroundTheAddressSpace",
     [](const Scene& s) { return write_to(s, s.good, 0 - s.good.address - 32, kSmall); }, kAccess,
     kAccessEvent},
    {"WritePastTheEndLarge", [](const Scene& s) { return write_to(s, s.good, kSize - kLarge + 1, kLarge); },
     kAccess, kAccessEvent},
    {"ReadOneBytePastTheEnd", [](const Scene& s) { return read_from(s, s.good, kSize - kSmall + 1, kSmall); },
     kAccess, kAccessEvent},
    {"FetchAddPastTheEnd", [](const Scene& s) { return fetch_add(1, s.result(), s.good, kSize, 1); }, kAccess,
     kAccessEvent},
    // The region's access.
    {"WriteToReadOnly", [](const Scene& s) { return write_to(s, s.read_only, 0, kSmall); }, kAccess,
     kAccessEvent},
    {"WriteToReadOnlyLarge", [](const Scene& s) { return write_to(s, s.read_only, 0, kLarge); }, kAccess,
     kAccessEvent},
    {"ReadFromWriteOnly", [](const Scene& s) { return read_from(s, s.write_only, 0, kSmall); }, kAccess,
     kAccessEvent},
    {"CompareSwapWithoutAtomic",
     [](const Scene& s) { return compare_swap(1, s.result(), s.write_only, 0, 0, 1); }, kAccess,
     kAccessEvent},
    {"FetchAddWithoutAtomic", [](const Scene& s) { return fetch_add(1, s.result(), s.read_only, 0, 1); },
     kAccess, kAccessEvent},
    // The protection domain.
    {"WriteToAnotherDomain", [](const Scene& s) { return write_to(s, s.foreign, 0, kSmall); }, kAccess,
     kAccessEvent},
    {"ReadFromAnotherDomain", [](const Scene& s) { return read_from(s, s.foreign, 0, kLarge); }, kAccess,
     kAccessEvent},
    {"FetchAddInAnotherDomain", [](const Scene& s) { return fetch_add(1, s.result(), s.foreign, 0, 1); },
     kAccess, kAccessEvent},
    // What is no request at all for this queue pair.
    {"FetchAddMisaligned", [](const Scene& s) { return fetch_add(1, s.result(), s.good, 12, 1); }, kInvalid,
     kInvalidEvent},
    {"CompareSwapMisaligned", [](const Scene& s) { return compare_swap(1, s.result(), s.good, 1, 0, 1); },
     kInvalid, kInvalidEvent},
    {"WriteNotEnabled", [](const Scene& s) { return write_to(s, s.good, 0, kSmall); }, kInvalid,
     kInvalidEvent, deny},
    {"ReadNotEnabled", [](const Scene& s) { return read_from(s, s.good, 0, kSmall); }, kInvalid,
     kInvalidEvent, deny},
    {"FetchAddNotEnabled", [](const Scene& s) { return fetch_add(1, s.result(), s.good, 0, 1); }, kInvalid,
     kInvalidEvent, deny},
};

class RemoteErrors : public PairTest {
 protected:
  // A new pair with everything a cause needs, connected as `spoil` likes it.
  Scene set(void (*spoil)(Links&) = [](Links&) {}) {
    open();
    spoil(links_);
    connect();
    Scene scene;
    scene.local = a().add_buffer(kSize);
    scene.good = b().add_buffer(kSize);
    const int own = IBV_ACCESS_LOCAL_WRITE;
    scene.read_only = b().add_buffer({.length = kSize, .access = own | IBV_ACCESS_REMOTE_READ});
    scene.write_only = b().add_buffer({.length = kSize, .access = own | IBV_ACCESS_REMOTE_WRITE});
    scene.foreign = b().add_buffer({.length = kSize, .other_domain = true});
    scene.gone = b().add_buffer(kSize);
    EXPECT_EQ(0, b().deregister(scene.gone));
    for (const auto& buffer : remote(scene)) b().fill(buffer, buffer.id);
    return scene;
  }
  static std::vector<Buffer> remote(const Scene& scene) {
    return {scene.good, scene.read_only, scene.write_only, scene.foreign, scene.gone};
  }

  // The refused request, then one without and one with a signal.
  void post_with_two_more(const Scene& scene, const SendOrder& order) {
    SendOrder second = send_of(2, scene.bytes(8));
    second.flags = 0;
    SendOrder third = rdma(IBV_WR_RDMA_WRITE, 3, scene.bytes(8), scene.good);
    EXPECT_EQ(0, a().post_sends({order, second, third}).error);
  }

  void expect_requester_in_error(ibv_wc_status status) {
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, status));
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 3, IBV_WC_WR_FLUSH_ERR));
  }

  // What is posted to a queue pair in ERR is flushed, too.
  static void expect_flushes(Side& side) {
    EXPECT_EQ(0, side.post_send(send_of(90, {})));
    EXPECT_TRUE(next_is(side, Queue::kSend, 90, IBV_WC_WR_FLUSH_ERR));
    EXPECT_EQ(0, side.post_receive(91));
    EXPECT_TRUE(next_is(side, Queue::kReceive, 91, IBV_WC_WR_FLUSH_ERR));
  }
};
RC_IN_BOTH(RemoteErrors);

TEST_P(RemoteErrors, RefusedRequestsFailBothSides) {
  for (const Cause& cause : kCauses) {
    SCOPED_TRACE(cause.name);
    const Scene scene = set(cause.spoil);
    for (const uint64_t wr_id : {11, 12}) EXPECT_EQ(0, b().post_receive(wr_id, {scene.good.all()}));
    EXPECT_EQ(0, a().post_receive(21, {scene.local.all()}));
    post_with_two_more(scene, cause.order(scene));

    expect_requester_in_error(cause.status);
    EXPECT_TRUE(next_is(a(), Queue::kReceive, 21, IBV_WC_WR_FLUSH_ERR));

    EXPECT_TRUE(event_is(b(), cause.event));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 12, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));

    expect_flushes(a());
    expect_flushes(b());
    for (const auto& buffer : remote(scene)) EXPECT_EQ(-1, b().mismatch(buffer, 0, kSize, buffer.id));
    if (HasFailure()) break;  // one is enough to read
  }
}

// A responder that may have no READ or atomic under way (max_dest_rd_atomic 0) has no use for one.
TEST_P(RemoteErrors, ResponderWithoutResources) {
  const auto read = [](const Scene& s) { return read_from(s, s.good, 0, kSmall); };
  const auto add = [](const Scene& s) { return fetch_add(1, s.result(), s.good, 0, 1); };
  for (const Cause& cause :
       {Cause{"READ", read, kInvalid, kInvalidEvent}, Cause{"atomic", add, kInvalid, kInvalidEvent}}) {
    SCOPED_TRACE(cause.name);
    const Scene scene = set([](Links& links) { links.b.max_dest_rd_atomic = 0; });
    post_with_two_more(scene, cause.order(scene));
    expect_requester_in_error(cause.status);
    EXPECT_TRUE(event_is(b(), cause.event));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
    EXPECT_EQ(-1, b().mismatch(scene.good, 0, kSize, scene.good.id));
  }
}

TEST_P(RemoteErrors, OnlyOneEventAndNoneForTheRequester) {
  const Scene scene = set();
  post_with_two_more(scene, kCauses[0].order(scene));
  expect_requester_in_error(IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_TRUE(no_event(b()));
  EXPECT_TRUE(no_event(a()));
  EXPECT_TRUE(nothing_comes(b(), Queue::kReceive));
  EXPECT_TRUE(nothing_comes(b(), Queue::kSend));
}

// What came before a refused request is done, and its completion comes first.
TEST_P(RemoteErrors, EarlierRequestsStandFirst) {
  const Scene scene = set();
  a().fill(scene.local, 500);
  EXPECT_EQ(0, b().post_receive(11, {scene.read_only.piece(0, 64)}));
  SendOrder before = write_to(scene, scene.good, 0, kSmall);
  before.wr_id = 40;
  SendOrder sent = send_of(41, scene.bytes(32));
  SendOrder bad = with_key(write_to(scene, scene.good, 0, kSmall), 0);
  EXPECT_EQ(0, a().post_sends({before, sent, bad}).error);
  EXPECT_TRUE(next_is(a(), Queue::kSend, 40, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 41, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS)) << "the peer was told that it arrived";
  EXPECT_EQ(-1, b().mismatch(scene.good, 0, kSmall, 500));
}

// Also where the peer has had such WRITEs before, and knows us.
TEST_P(RemoteErrors, ALongWriteIsRefusedAsAWhole) {
  const Scene scene = set();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(0, a().post_send(write_to(scene, scene.good, 0, kLarge)));
    EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  }
  b().fill(scene.good, 700);
  EXPECT_EQ(0, a().post_send(write_to(scene, scene.good, kSize - kLarge + 1, kLarge)));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_REM_ACCESS_ERR));
  EXPECT_EQ(-1, b().mismatch(scene.good, 0, kSize, 700));
}

// A request without bytes touches no memory: its key isn't looked at (IBA 9.7.4.1.5).
TEST_P(RemoteErrors, EmptyRequestsNeedNoKey) {
  const Scene scene = set();
  EXPECT_EQ(0, b().post_receive(11));
  SendOrder write_imm = with_key(rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 3, {}, scene.good), 0);
  EXPECT_EQ(0, a().post_sends({with_key(rdma(IBV_WR_RDMA_WRITE, 1, {}, scene.good), 0),
                               with_key(rdma(IBV_WR_RDMA_READ, 2, {}, scene.good), 0), write_imm})
                   .error);
  for (const uint64_t wr_id : {1, 2, 3}) EXPECT_TRUE(next_is(a(), Queue::kSend, wr_id, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_SUCCESS));
}

TEST_P(RemoteErrors, WriteWithImmediateFailsTheReceiveItWasFor) {
  for (const uint64_t length : {kSmall, kLarge}) {
    if (over_wire() && length == kLarge)
      continue;  // fails with its first packet, the immediate is in the last
    const Scene scene = set();
    for (const uint64_t wr_id : {11, 12}) EXPECT_EQ(0, b().post_receive(wr_id, {scene.good.all()}));
    SendOrder order = with_key(write_to(scene, scene.good, 0, length), 0x7fffff01);
    order.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    post_with_two_more(scene, order);
    expect_requester_in_error(IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 11, IBV_WC_LOC_ACCESS_ERR));
    EXPECT_TRUE(next_is(b(), Queue::kReceive, 12, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
    EXPECT_TRUE(no_event(b())) << "the receive's completion has told of it";
  }
}

// Without a receive to tell it, the event does.
TEST_P(RemoteErrors, WriteWithImmediateAndNoReceive) {
  const Scene scene = set();
  SendOrder order = with_key(write_to(scene, scene.good, 0, kSmall), 0x7fffff01);
  order.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  post_with_two_more(scene, order);
  expect_requester_in_error(IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_TRUE(nothing_comes(b(), Queue::kReceive));
  EXPECT_TRUE(state_is(b(), IBV_QPS_ERR));
}

// A stale key stays a wrong key, even once its place in the table is used again.
TEST_P(RemoteErrors, KeysAreNotReusedSoon) {
  Scene scene = set();
  for (int i = 0; i < 200; ++i) {
    const Buffer next = b().add_buffer(kSmall);
    EXPECT_NE(scene.gone.rkey, next.rkey);
    EXPECT_EQ(0, b().deregister(next));
  }
  post_with_two_more(scene, write_to(scene, scene.gone, 0, kSmall));
  expect_requester_in_error(IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace verbena::rc
