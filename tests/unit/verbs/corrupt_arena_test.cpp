// Whatever a peer can write is hostile: here its rings, bells and bindings, towards us as owners; its tables,
// towards us as requesters, are in corrupt_tables_test.cpp. Never a crash or an access outside; the queue
// pair concerned fails or the lie is ignored; the others go on. Peers' mappings have guards around them
// (responder_script), so leaving them is fatal here.
#include <gtest/gtest.h>

#include <algorithm>

#include "lies.hpp"
#include "responder_script.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

using arena::RecordKind;
using engine::RemoteUse;
using engine::Verdict;

constexpr size_t kBufferAt = 4096;  // where receives are, with untouched memory around them
constexpr uint32_t kBuffer = 100;

// The ring through which a script's requester delivers, in that requester's hands.
class LyingProducer {
 public:
  explicit LyingProducer(Script& script) : s_(script) {}

  [[nodiscard]] arena::RingHead& head() { return *reinterpret_cast<arena::RingHead*>(memory()); }
  [[nodiscard]] arena::RingSlot& slot(uint32_t number) {
    return reinterpret_cast<arena::RingSlot*>(memory() + sizeof(arena::RingHead))[number % shape().slots];
  }
  [[nodiscard]] arena::RingShape shape() const {
    const auto& entry = s_.owner_process.own_arena().qp(index_of(s_));
    return {entry.ring_slots.get(), entry.ring_payload.get()};
  }
  void publish(const arena::Record& record, uint64_t payload_end) {
    arena::RingSlot& target = slot(next_);
    target.qp.set(record.qp);
    target.incarnation.set(record.incarnation);
    target.length.set(record.length);
    target.imm.set(record.imm);
    target.kind_flags.set(static_cast<uint32_t>(record.kind) << 8 | record.flags);
    target.payload_end.set(payload_end);
    target.publish.release(++next_);
  }
  // For this script's queue pair, in its present life.
  [[nodiscard]] arena::Record record(RecordKind kind, uint32_t length) const {
    return {.kind = kind, .qp = s_.qp->number().value, .incarnation = s_.qp->incarnation(), .length = length};
  }

 private:
  [[nodiscard]] std::byte* memory() {
    const auto& entry = s_.owner_process.own_arena().qp(index_of(s_));
    return s_.seen->arena().in_rings_heap(entry.ring_at.get(), shape().size());
  }
  Script& s_;
  uint32_t next_ = 0;
};

void post_some(Script& s, unsigned count) {
  for (uint64_t i = 0; i < count; ++i) (void)s.post(i, kBufferAt, kBuffer)();
}

void expect_untouched_around(const Script& s) {
  const auto is_zero = [](std::byte b) { return b == std::byte{}; };
  EXPECT_TRUE(std::all_of(s.memory.begin(), s.memory.begin() + kBufferAt, is_zero));
  EXPECT_TRUE(std::all_of(s.memory.begin() + kBufferAt + kBuffer, s.memory.end(), is_zero));
}

// ---- Lies told one by one ----

TEST(LyingRequester, WildLengthsFailItsOwnQueuePairOnly) {
  struct Case {
    const char* what;
    RecordKind kind;
    uint32_t length;
    uint64_t payload_end;
  };
  for (const Case& lie :
       {Case{"bytes that aren't there", RecordKind::kSend, 50, 0},
        Case{"more than there is room for", RecordKind::kSend, UINT32_MAX, UINT32_MAX},
        Case{"placed more than fits", RecordKind::kPlaced, kBuffer + 1, 0},
        Case{"placed without end", RecordKind::kPlaced, UINT32_MAX, 0},
        Case{"wrote more than a message has", RecordKind::kWriteImm, kMaxMessageBytes + 1, 0},
        Case{"no such kind", static_cast<RecordKind>(0), 1, 0},
        Case{"no such kind", static_cast<RecordKind>(77), 1, 0}}) {
    SCOPED_TRACE(lie.what);
    OwnerProcess owner;
    const auto cq = owner.make_cq(64);
    Script s(owner, {.peer = {7}}, cq);
    post_some(s, 1);
    LyingProducer liar(s);
    liar.publish(liar.record(lie.kind, lie.length), lie.payload_end);
    s.expect(
        {.completions = {{0, IBV_WC_WR_FLUSH_ERR}}, .events = {IBV_EVENT_QP_FATAL}, .state = IBV_QPS_ERR});
  }
}

TEST(LyingRequester, AMessageLongerThanItsReceiveIsTheReceivesError) {
  OwnerProcess owner;
  Script s(owner);
  post_some(s, 2);
  LyingProducer liar(s);
  liar.publish(liar.record(RecordKind::kSend, kBuffer + 1), 1024);
  s.expect({.completions = {{0, IBV_WC_LOC_LEN_ERR}, {1, IBV_WC_WR_FLUSH_ERR}}, .state = IBV_QPS_ERR});
  expect_untouched_around(s);
}

TEST(LyingRequester, MessagesWithoutCreditFailTheQueuePair) {
  for (const RecordKind kind : {RecordKind::kSend, RecordKind::kPlaced, RecordKind::kWriteImm}) {
    OwnerProcess owner;
    Script s(owner);
    LyingProducer liar(s);
    liar.publish(liar.record(kind, 4), 0);
    s.expect({.events = {IBV_EVENT_QP_FATAL}, .state = IBV_QPS_ERR});
  }
}

TEST(LyingRequester, OthersQueuePairsAndLivesAreNoneOfItsBusiness) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(64);
  Script s(owner, {.peer = {7}}, cq);
  Script other(owner, {.peer = {8}}, cq);                                        // of another process
  Script elsewhere(owner, {.peer = {7}, .peer_index = 101}, owner.make_cq(64));  // not in this queue
  for (Script* script : {&s, &other, &elsewhere}) post_some(*script, 1);
  LyingProducer liar(s);
  for (const RecordKind kind : {RecordKind::kSend, RecordKind::kPlaced, RecordKind::kFail}) {
    for (arena::Record record :
         {LyingProducer(other).record(kind, 4), LyingProducer(elsewhere).record(kind, 4)})
      liar.publish(record, 0);
    for (const uint32_t nobody :
         {0u, 0xffffffffu, s.qp->number().value ^ 0x1111, s.qp->number().value | 1u << 24}) {
      arena::Record record = liar.record(kind, 4);
      record.qp = nobody;
      liar.publish(record, 0);
    }
    for (const uint32_t life : {s.qp->incarnation() - 1, s.qp->incarnation() + 1}) {
      arena::Record record = liar.record(kind, 4);
      record.incarnation = life;
      liar.publish(record, 0);
    }
  }
  EXPECT_TRUE(poll_all(*cq).empty());
  EXPECT_TRUE(poll_all(*elsewhere.cq).empty());
  for (Script* script : {&s, &other, &elsewhere}) EXPECT_EQ(IBV_QPS_RTS, script->qp->state());
  EXPECT_TRUE(owner.take_events().empty());
}

// ---- Random lies ----

TEST(LyingRequester, RandomRecordsHarmNobodyElseOver60Seeds) {
  unsigned failures = 0;
  unsigned completions = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    OwnerProcess owner;
    const auto cq = owner.make_cq(256);
    Script s(owner, {.peer = {7}}, cq);
    Script honest(owner, {.peer = {8}}, seed % 2 == 0 ? cq : nullptr);
    LyingProducer liar(s);
    post_some(s, 16);
    uint64_t sent = 0;
    for (int step = 0; step < 200; ++step) {
      const RecordKind kinds[] = {RecordKind::kSend, RecordKind::kPlaced, RecordKind::kWriteImm,
                                  RecordKind::kFail, static_cast<RecordKind>(random.below(256))};
      arena::Record record = liar.record(kinds[random.below(5)], static_cast<uint32_t>(random.wild()));
      if (random.one_in(2)) record.length = random.below(2 * kBuffer);
      if (random.one_in(4))
        record.qp = random.one_in(2) ? honest.qp->number().value : static_cast<uint32_t>(random.any());
      if (random.one_in(8)) record.incarnation = static_cast<uint32_t>(random.wild());
      record.flags = static_cast<uint8_t>(random.any());
      record.imm = static_cast<uint32_t>(random.any());
      const uint64_t near = liar.head().payload_consumed.get() + random.below(500);
      liar.publish(record, random.one_in(4) ? random.wild() : near);
      if (random.one_in(16)) liar.head().consumed.set(static_cast<uint32_t>(random.wild()));
      if (random.one_in(16)) liar.head().payload_consumed.set(random.wild());

      if (random.one_in(4)) {
        (void)honest.post(sent, 0, 64)();
        ASSERT_EQ(Verdict::kDone, honest.deliver("honest " + std::to_string(sent))());
      }
      for (const auto& queue : {cq, honest.cq})
        for (const ibv_wc& completion : poll_all(*queue)) {
          if (completion.qp_num == honest.qp->number().value) {
            ASSERT_EQ(IBV_WC_SUCCESS, completion.status);
            ASSERT_EQ(sent, completion.wr_id);
            ASSERT_EQ("honest " + std::to_string(sent), honest.text_at(0, completion.byte_len));
            ++sent;
          } else if (completion.status == IBV_WC_SUCCESS) {
            ASSERT_LE(completion.byte_len, completion.opcode == IBV_WC_RECV ? kBuffer : kMaxMessageBytes);
            (void)s.post(1, kBufferAt, kBuffer)();
            ++completions;
          }
        }
      ASSERT_EQ(IBV_QPS_RTS, honest.qp->state());
      if (s.qp->state() == IBV_QPS_ERR) {
        ++failures;
        OwnerProcess::move_to(*s.qp, IBV_QPS_RESET);
        owner.connect(*s.qp, s.setup);
        post_some(s, 16);
      }
    }
    expect_untouched_around(s);
  }
  EXPECT_GT(failures, 100u) << "the test doesn't test";
  EXPECT_GT(completions, 100u);
}

TEST(LyingRequester, RandomBytesOverAWholeRingHarmNobodyElse) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    OwnerProcess owner;
    const auto cq = owner.make_cq(256);
    Script s(owner, {.peer = {7}}, cq);
    Script honest(owner, {.peer = {8}}, cq);
    post_some(s, 16);
    (void)honest.post(1, 0, 64)();
    LyingProducer liar(s);
    auto* bytes = reinterpret_cast<std::byte*>(&liar.head());
    for (size_t i = 0; i < liar.shape().size(); ++i) bytes[i] = static_cast<std::byte>(random.any());
    for (uint32_t i = 0; i < liar.shape().slots; ++i) {  // else none is ever looked at
      liar.slot(i).publish.set(i + 1);
      if (random.one_in(2)) liar.slot(i).qp.set(s.qp->number().value);
      if (random.one_in(2)) liar.slot(i).incarnation.set(s.qp->incarnation());
    }
    (void)honest.deliver("honest")();
    unsigned from_honest = 0;
    for (const ibv_wc& completion : poll_all(*cq))
      from_honest += completion.qp_num == honest.qp->number().value ? 1 : 0;
    EXPECT_EQ(1u, from_honest);
    EXPECT_EQ(IBV_QPS_RTS, honest.qp->state());
    expect_untouched_around(s);
    // Requesters of ours meet the same ring as producers.
    for (int i = 0; i < 100; ++i) (void)s.deliver(std::string(random.below(8193), 'x'))();
  }
}

TEST(LyingRequester, BindingsBellsAndHazardsAreOnlyWords) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    OwnerProcess owner;
    owner.process().regions().set_liveness([](base::Slot) { return false; });
    const auto channel = *CompletionChannel::create();
    const auto cq = owner.make_cq(64, channel.get());
    Script s(owner, {}, cq);
    const auto& rings = s.seen->arena();
    for (int step = 0; step < 50; ++step) {
      auto& binding = rings.binding(index_of(s));
      binding.bound.set(random.wild());
      binding.waiting.set(static_cast<uint32_t>(random.wild()));
      rings.bell(cq->index()).armed.set(static_cast<uint32_t>(random.wild()));
      rings.bell(cq->index()).attention.set(static_cast<uint32_t>(random.wild()));
      for (auto& users : rings.rings_head().hazard_users) users.set(random.any());
      auto& lane = rings.hazards({static_cast<uint8_t>(random.any())}, random.below(arena::kHazardLanes));
      for (auto& region : lane.regions)
        region.set(random.one_in(2) ? random.below(100) : static_cast<uint32_t>(random.any()));
      (void)s.post(1, kBufferAt, kBuffer)();
      cq->arm(random.one_in(2));
      const Verdict verdict = s.deliver("hello")();
      EXPECT_TRUE(verdict == Verdict::kSilence || verdict == Verdict::kDone) << static_cast<int>(verdict);
      (void)poll_all(*cq);
      const uint32_t key = owner.register_memory(s.memory, kAnyRemote);
      ASSERT_TRUE(owner.process().deregister(key));
      ASSERT_NE(IBV_QPS_ERR, s.qp->state());
      OwnerProcess::move_to(*s.qp, IBV_QPS_RESET);  // takes back what was bound
      owner.connect(*s.qp, s.setup);
      s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
      ASSERT_EQ(Verdict::kDone, s.check(s.at(0, 1), RemoteUse::kRead)());
    }
  }
}

}  // namespace
}  // namespace verbena::verbs
