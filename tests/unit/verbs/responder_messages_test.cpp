// The responder's actions on messages: credits and promises, short and long ones, rings, bells, failure.
#include <gtest/gtest.h>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::Copied;
using engine::RemoteUse;
using engine::Verdict;

constexpr Arrival kWithImm{.has_imm = true, .imm = 42};
Arrival long_send(uint64_t length) { return {.length = length}; }
Arrival write_imm(uint64_t length) {
  return {.kind = Arrival::Kind::kWriteImm, .length = length, .has_imm = true, .imm = 9};
}

// ---- Short messages ----

TEST(ShortMessage, LandsInTheFirstReceive) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 100)},
          {"post", s.post(2, 1000, 100)},
          {"in the slot", s.deliver("hello"), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 5}}, .memory = {{0, std::string("hello\0", 6)}}}},
          {"in the payload area", s.deliver(std::string(100, 'x')), Verdict::kDone,
           Effects{.completions = {{2, IBV_WC_SUCCESS, 100}}, .memory = {{1000, std::string(100, 'x')}}}}});
}

TEST(ShortMessage, CarriesAnImmediateOrNone) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 10)},
          {"post", s.post(2, 0, 10)},
          {"with", s.deliver("a", kWithImm), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 1, IBV_WC_RECV, 42}}}},
          {"without", s.deliver("b"), Verdict::kDone, Effects{.completions = {{2, IBV_WC_SUCCESS, 1}}}}});
}

TEST(ShortMessage, IsScatteredOverTheReceivesPieces) {
  OwnerProcess owner;
  Script s(owner);
  const auto piece = [&](size_t at, uint32_t length) {
    return ibv_sge{.addr = s.address(at), .length = length, .lkey = s.key};
  };
  s.play({{"post", s.post(1, {piece(0, 3), piece(10, 0), piece(20, 2), piece(30, 50)})},
          {"more than two pieces hold", s.deliver("abcdefg"), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 7}},
                   .memory = {{0, std::string("abc\0", 4)}, {20, std::string("de\0", 3)}, {30, "fg"}}}}});
}

TEST(ShortMessage, EmptyOnesNeedAReceiveButNoMemory) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"no receive", s.deliver(""), Verdict::kNotReady},
          {"one without pieces", s.post(1, std::vector<ibv_sge>{})},
          {"fits", s.deliver(""), Verdict::kDone, Effects{.completions = {{1, IBV_WC_SUCCESS, 0}}}},
          {"one whose key is wrong", s.post(2, {{.addr = 1, .length = 10, .lkey = 12345}})},
          {"an empty message looks at no key", s.deliver(""), Verdict::kDone,
           Effects{.completions = {{2, IBV_WC_SUCCESS, 0}}}},
          {"one whose key is wrong", s.post(3, {{.addr = 1, .length = 10, .lkey = 12345}})},
          {"nor does the notice of a write", s.begin_receive(write_imm(1000))},
          {"which takes it", s.finish_receive(write_imm(1000)), Verdict::kDone,
           Effects{.completions = {{3, IBV_WC_SUCCESS, 1000, IBV_WC_RECV_RDMA_WITH_IMM, 9}}}}});
}

TEST(ShortMessage, UnreadableMemoryOfTheRequesterLeavesNoTrace) {
  OwnerProcess owner;
  Script s(owner);
  const auto from_nowhere = [&] {
    const iovec from{reinterpret_cast<void*>(16), 4};
    return s.responder->deliver({.length = 4}, {&from, 1});
  };
  s.play({{"post", s.post(1, 0, 100)},
          {"fault", from_nowhere, Verdict::kFaultHere},
          {"the receive is still there", s.deliver("abcd"), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 4}}}}});
}

// ---- Credits and promises ----

TEST(Credit, NoneIsRnrUntilOneIsPosted) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"none", s.deliver("early"), Verdict::kNotReady},
          {"none", s.begin_receive(long_send(1 << 16)), Verdict::kNotReady},
          {"none", s.begin_receive(write_imm(0)), Verdict::kNotReady}});
  EXPECT_EQ(12, s.responder->rnr_timer_code());
  EXPECT_TRUE(s.responder->wait_for_receive());
  auto& waiting = owner.own_arena().binding(static_cast<uint16_t>(s.qp->number().value)).waiting;
  EXPECT_EQ(1u, waiting.get()) << "post_recv sees it and tells";
  s.play({{"later", s.post(1, 0, 100)}});
  EXPECT_FALSE(s.responder->wait_for_receive()) << "one came before we slept";
  s.play({{"now", s.deliver("early"), Verdict::kDone, Effects{.completions = {{1, IBV_WC_SUCCESS, 5}}}},
          {"used up", s.deliver("more"), Verdict::kNotReady}});
}

TEST(Promise, HoldsForTheSmallestReceiveThatWaits) {
  OwnerProcess owner;
  Script s(owner);
  const auto& entry = owner.own_arena().qp(static_cast<uint16_t>(s.qp->number().value));
  s.play({{"large", s.post(1, 0, 1000)}});
  EXPECT_EQ(1001u, entry.fits_plus_one.get());
  s.play({{"small", s.post(2, 2000, 10)}});
  EXPECT_EQ(11u, entry.fits_plus_one.get());
  s.play({{"longer than promised, but the first one takes it", s.deliver(std::string(500, 'x')),
           Verdict::kDone, Effects{.completions = {{1, IBV_WC_SUCCESS, 500}}}},
          {"too long for the second", s.deliver(std::string(11, 'x')), Verdict::kTooLong},
          {"exactly as long", s.deliver(std::string(10, 'x')), Verdict::kDone,
           Effects{.completions = {{2, IBV_WC_SUCCESS, 10}}}},
          {"a queue that was empty promises anew", s.post(3, 0, 700)}});
  EXPECT_EQ(701u, entry.fits_plus_one.get());
  s.play({{"which holds", s.deliver(std::string(700, 'x')), Verdict::kDone,
           Effects{.completions = {{3, IBV_WC_SUCCESS, 700}}}}});
}

TEST(Promise, IsWithdrawnWithTheRegion) {
  OwnerProcess owner;
  Script s(owner);
  const uint32_t other =
      owner.register_memory(std::span(s.memory).subspan(4096, 4096), IBV_ACCESS_LOCAL_WRITE);
  s.play({{"one in each region", s.post(1, 0, 100)},
          {"one in each region", s.post(2, {{.addr = s.address(4096), .length = 100, .lkey = other}})},
          {"owner", Script::owner([&] { ASSERT_TRUE(owner.process().deregister(other)); })},
          {"the first is looked at, and good", s.deliver("abc"), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 3}}}},
          {"the second's region is gone", s.deliver("abc"), Verdict::kBadReceive}});
}

TEST(Promise, AReceiveThatWasFaultyWhenPostedIsRefused) {
  OwnerProcess owner;
  Script s(owner);
  const uint32_t read_only = owner.register_memory(s.memory, IBV_ACCESS_REMOTE_READ);
  s.play({{"in memory that may not be written", s.post(1, {{s.address(0), 100, read_only}})},
          {"short", s.deliver("abc"), Verdict::kBadReceive},
          {"long", s.begin_receive(long_send(50)), Verdict::kBadReceive},
          {"fail", s.fail(Verdict::kBadReceive), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_LOC_PROT_ERR}}, .state = IBV_QPS_ERR}}});
}

TEST(Promise, AMessageInTheRingWhoseRegionWentFailsTheReceive) {
  OwnerProcess owner;
  Script s(owner);
  const uint32_t other =
      owner.register_memory(std::span(s.memory).subspan(4096, 4096), IBV_ACCESS_LOCAL_WRITE);
  s.play({{"post", s.post(1, {{s.address(4096), 100, other}})},
          {"post", s.post(2, 0, 100)},
          {"delivered on the promise", s.deliver("abc"), Verdict::kDone, kUnseen}});
  owner.process().regions().remove(other);  // behind everybody's back: without looking into the rings first
  s.expect({.completions = {{1, IBV_WC_LOC_PROT_ERR}, {2, IBV_WC_WR_FLUSH_ERR}},
            .state = IBV_QPS_ERR,
            .memory = {{4096, std::string(3, '\0')}}});
}

TEST(Promise, WhatIsInTheRingLandsBeforeItsRegionGoes) {
  OwnerProcess owner;
  Script s(owner);
  const uint32_t other =
      owner.register_memory(std::span(s.memory).subspan(4096, 4096), IBV_ACCESS_LOCAL_WRITE);
  s.play({{"post", s.post(1, {{s.address(4096), 100, other}})},
          {"in the ring", s.deliver("abc"), Verdict::kDone, kUnseen},
          {"owner", Script::owner([&] { ASSERT_TRUE(owner.process().deregister(other)); }), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 3}}, .memory = {{4096, "abc"}}}}});
}

// ---- Long messages ----

TEST(LongMessage, IsPlacedInPiecesAndCompletesOnce) {
  OwnerProcess owner;
  Script s(owner);
  const std::string a(40'000, 'a');
  const std::string b(30'000, 'b');
  s.play({{"post", s.post(1, {{s.address(0), 50'000, s.key}, {s.address(100'000), 50'000, s.key}})},
          {"begin", s.begin_receive(long_send(70'000))},
          {"place", s.place(0, a)},
          {"place over a border", s.place(40'000, b)},
          {"finish", s.finish_receive(long_send(70'000)), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 70'000}},
                   .memory = {
                       {0, a}, {40'000, std::string(10'000, 'b')}, {100'000, std::string(20'000, 'b')}}}}});
}

TEST(LongMessage, OfARequesterThatStopsInTheMiddleLeavesTheReceiveAtTheHead) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 100'000)},
          {"post", s.post(2, 200'000, 100'000)},
          {"begin", s.begin_receive(long_send(70'000))},
          {"place half of it, then nothing more", s.place(0, std::string(35'000, 'x'))},
          {"the next message gets the same receive", s.deliver("short"), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 5}}, .memory = {{0, "shortx"}}}},
          {"begin", s.begin_receive(long_send(70'000))},
          {"place", s.place(0, std::string(35'000, 'y'))},
          {"the owner gives up: each receive is flushed once",
           Script::owner([&] { OwnerProcess::move_to(*s.qp, IBV_QPS_ERR); }), Verdict::kDone,
           Effects{.completions = {{2, IBV_WC_WR_FLUSH_ERR}}, .state = IBV_QPS_ERR}}});
}

TEST(LongMessage, LongerThanTheReceiveIsFoundOut) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 10'000)},
          {"post", s.post(2, 0, 10'000)},
          {"begin", s.begin_receive(long_send(10'001)), Verdict::kTooLong},
          {"nor can it be placed behind its end", s.place(9'999, "xy"), Verdict::kTooLong},
          {"nor far behind", s.place(1 << 20, "xy"), Verdict::kTooLong},
          {"fail", s.fail(Verdict::kTooLong), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_LOC_LEN_ERR}, {2, IBV_WC_WR_FLUSH_ERR}},
                   .state = IBV_QPS_ERR,
                   .memory = {{9'999, std::string(2, '\0')}}}}});
}

TEST(LongMessage, WhosePiecesGoAwayIsFoundOut) {
  OwnerProcess owner;
  Script s(owner);
  const uint32_t other =
      owner.register_memory(std::span(s.memory).subspan(65536, 65536), IBV_ACCESS_LOCAL_WRITE);
  s.play({{"post", s.post(1, {{s.address(0), 20'000, s.key}, {s.address(65536), 20'000, other}})},
          {"begin", s.begin_receive(long_send(30'000))},
          {"place", s.place(0, std::string(20'000, 'x'))},
          {"owner", Script::owner([&] { ASSERT_TRUE(owner.process().deregister(other)); })},
          {"the other piece", s.place(20'000, "more"), Verdict::kBadReceive}});
  s.seen->scripted_memory().instead = Copied::kFaultThere;
  s.play({{"unmapped: it is the receive's fault", s.place(0, "x"), Verdict::kBadReceive}});
  s.seen->scripted_memory().instead = Copied::kOwnerGone;
  s.play({{"the owner died under our hands", s.place(0, "x"), Verdict::kSilence}});
}

TEST(WriteImm, ConsumesAReceiveAndTellsTheLength) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 1)},
          {"write", s.write(s.at(500, 4), "data")},
          {"the receive's own length doesn't matter", s.begin_receive(write_imm(4))},
          {"finish", s.finish_receive(write_imm(4)), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 4, IBV_WC_RECV_RDMA_WITH_IMM, 9}},
                   .memory = {{0, std::string(1, '\0')}, {500, "data"}}}}});
}

// ---- What reads the owner's memory finds the messages before it ----

TEST(AfterMessages, AReadOfTheirBuffersWaitsUntilTheyAreThere) {
  OwnerProcess owner;
  Script s(owner);
  const engine::AtomicRequest add{engine::AtomicKind::kFetchAdd, s.key, s.address(200), 0};
  s.play({{"post", s.post(1, 0, 100)},
          {"post", s.post(2, {{s.address(200), 30, s.key}, {s.address(300), 100, s.key}})},
          {"short", s.deliver("first"), Verdict::kDone, kUnseen},
          {"longer", s.deliver(std::string(60, 'y')), Verdict::kDone, kUnseen},
          {"elsewhere", s.check(s.at(500, 100), RemoteUse::kRead), Verdict::kDone, kUnseen},
          {"between its pieces", s.check(s.at(230, 70), RemoteUse::kRead), Verdict::kDone, kUnseen},
          {"its last byte", s.check(s.at(399, 1), RemoteUse::kRead), Verdict::kNoRoom, kUnseen},
          {"the first one's", s.check(s.at(4, 1), RemoteUse::kRead), Verdict::kNoRoom, kUnseen},
          {"all", s.check(s.at(0, 1000), RemoteUse::kRead), Verdict::kNoRoom, kUnseen},
          {"an atomic", s.atomic(add), Verdict::kNoRoom, kUnseen},
          {"a write doesn't care", s.check(s.at(0, 1000), RemoteUse::kWrite), Verdict::kDone, kUnseen}});
  EXPECT_TRUE(owner.own_arena().bell(s.cq->index()).attention.get() & arena::kMerge);
  EXPECT_GT(s.seen->wakes, 0u) << "nobody may be polling";
  s.cq->merge();
  s.play({{"now", s.check(s.at(0, 1000), RemoteUse::kRead), Verdict::kDone, kUnseen},
          {"read", s.read(s.at(0, 5), "first"), Verdict::kDone, kUnseen},
          {"an atomic", s.atomic(add, 0x7979797979797979), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 5}, {2, IBV_WC_SUCCESS, 60}}}}});
}

TEST(AfterMessages, WhatTheOwnerTookByItselfIsntWaitedFor) {
  OwnerProcess owner;
  Script s(owner);
  for (uint64_t i = 0; i < 100; ++i)
    s.play(
        {{"post", s.post(i, 0, 100)},
         {"deliver", s.deliver("message"), Verdict::kDone, Effects{.completions = {{i, IBV_WC_SUCCESS, 7}}}},
         {"check", s.check(s.at(0, 1000), RemoteUse::kRead)}});
}

}  // namespace
}  // namespace verbena::verbs
