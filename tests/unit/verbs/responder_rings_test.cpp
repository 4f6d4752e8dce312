// How messages travel: rings that fill, wrap, are shared and outlive connections; bells; failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::Verdict;

TEST(Ring, FullIsNoRoomUntilTheOwnersHelperMerges) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(1);
  Script s(owner, {.receives = 64}, cq);
  ASSERT_TRUE(cq->resize(128));
  for (uint64_t i = 0; i < 64; ++i) s.play({{"post", s.post(i, 16 * i, 16)}});
  const uint32_t slots = s.ring_slots();
  for (uint32_t i = 0; i < slots; ++i) s.play({{"fits", s.deliver("x"), Verdict::kDone, kUnseen}});
  const unsigned wakes = s.seen->wakes;
  s.play({{"full", s.deliver("y"), Verdict::kNoRoom, kUnseen}});
  EXPECT_EQ(wakes + 1, s.seen->wakes);
  EXPECT_TRUE(owner.own_arena().bell(cq->index()).attention.get() & arena::kMerge);
  cq->merge();
  s.play({{"room again", s.deliver("y"), Verdict::kDone, kUnseen}});
  Effects all{.memory = {{16 * (slots - 1), "x"}, {16 * slots, "y"}}};
  for (uint64_t i = 0; i <= slots; ++i) all.completions.push_back({i, IBV_WC_SUCCESS, 1});
  s.expect(all);
}

TEST(Ring, MoreThanTheQueueHoldsIsAnOverrun) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(16);
  Script s(owner, {.receives = 64}, cq);
  for (uint64_t i = 0; i < 64; ++i) s.play({{"post", s.post(i, 0, 16)}});
  for (int i = 0; i < 64; ++i) {
    if (s.deliver("x")() != Verdict::kNoRoom) continue;
    cq->merge();
  }
  (void)owner.process().work();
  ibv_wc completion;
  EXPECT_EQ(-1, cq->poll(1, &completion));
  EXPECT_EQ(IBV_QPS_ERR, s.qp->state());
  EXPECT_EQ(std::vector{IBV_EVENT_CQ_ERR}, owner.take_events());
  EXPECT_EQ(Verdict::kSilence, s.deliver("x")()) << "its peers meet silence";
}

TEST(Ring, PayloadWrapsForManyLaps) {
  OwnerProcess owner;
  Script s(owner, {.receives = 4}, owner.make_cq(1));  // 16 KiB of payload
  std::mt19937 random(1);
  for (uint64_t i = 0; i < 500; ++i) {
    const size_t length = i % 5 == 0 ? Responder::kLongestInRing : random() % (Responder::kLongestInRing + 1);
    std::string text(length, '\0');
    for (char& c : text) c = static_cast<char>(random());
    s.play({{"post", s.post(i, 0, 8192), Verdict::kDone, kUnseen},
            {"deliver", s.deliver(text), Verdict::kDone,
             Effects{.completions = {{i, IBV_WC_SUCCESS, static_cast<uint32_t>(length)}},
                     .memory = {{0, text}}}}});
    ASSERT_FALSE(testing::Test::HasFailure()) << i;
  }
}

TEST(Ring, PayloadThatIsFullIsNoRoomThoughSlotsAreFree) {
  OwnerProcess owner;
  Script s(owner, {}, owner.make_cq(1));
  for (uint64_t i = 0; i < 4; ++i) s.play({{"post", s.post(i, i * 8192, 8192)}});
  const std::string text(8192, 'z');
  s.play(
      {{"half", s.deliver(text), Verdict::kDone, kUnseen},
       {"all", s.deliver(text), Verdict::kDone, kUnseen},
       {"no room", s.deliver(text), Verdict::kNoRoom, kUnseen},
       {"the owner polls", s.deliver("a word fits"), Verdict::kDone,
        Effects{
            .completions = {{0, IBV_WC_SUCCESS, 8192}, {1, IBV_WC_SUCCESS, 8192}, {2, IBV_WC_SUCCESS, 11}}}},
       {"room again", s.deliver(text), Verdict::kDone, Effects{.completions = {{3, IBV_WC_SUCCESS, 8192}}}}});
}

TEST(Ring, IsSharedByAllQueuePairsOfAPeerThatCompleteIntoOneQueue) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(256);
  std::vector<std::unique_ptr<Script>> scripts;
  for (uint16_t i = 0; i < 8; ++i) {
    scripts.push_back(
        std::make_unique<Script>(owner, QpSetup{.peer_index = static_cast<uint16_t>(100 + i)}, cq));
    for (uint64_t n = 0; n < 20; ++n) (void)scripts[i]->post(n, n * 16, 16)();
  }
  const auto& first = owner.own_arena().qp(static_cast<uint16_t>(scripts[0]->qp->number().value));
  std::mt19937 random(7);
  std::map<uint32_t, unsigned> sent;
  for (int i = 0; i < 120; ++i) {
    Script& s = *scripts[random() % 8];
    EXPECT_EQ(first.ring_at.get(),
              owner.own_arena().qp(static_cast<uint16_t>(s.qp->number().value)).ring_at.get());
    unsigned& count = sent[s.qp->number().value];
    if (count == 20) continue;
    ASSERT_EQ(Verdict::kDone, s.deliver(std::to_string(count++))());
  }
  std::map<uint32_t, unsigned> got;
  for (const ibv_wc& completion : poll_all(*cq)) EXPECT_EQ(got[completion.qp_num]++, completion.wr_id);
  EXPECT_EQ(sent, got);
  for (const auto& s : scripts)
    for (unsigned n = 0; n < sent[s->qp->number().value]; ++n) {
      const std::string text = std::to_string(n);
      EXPECT_EQ(text, s->text_at(n * 16, text.size()));
    }
}

TEST(Ring, OfOnePeerThatIsFullDoesntHinderAnother) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(1);
  Script loud(owner, {.peer = {7}, .receives = 64}, cq);
  Script quiet(owner, {.peer = {8}}, cq);
  for (uint64_t i = 0; i < 64; ++i) (void)loud.post(i, 0, 16)();
  (void)quiet.post(1000, 0, 16)();
  while (loud.deliver("x")() == Verdict::kDone) {
  }
  quiet.play({{"has a ring of its own", quiet.deliver("y"), Verdict::kDone, kUnseen}});
  std::vector<uint64_t> order;
  for (const ibv_wc& completion : poll_all(*cq)) order.push_back(completion.wr_id);
  EXPECT_EQ(loud.ring_slots() + 1, order.size());
  EXPECT_EQ(1, std::ranges::count(order, 1000u));
}

TEST(Ring, GoesOnWhereTheLastConnectionThroughItEnded) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(64);
  for (uint16_t life = 0; life < 5;
       ++life) {  // one connection after the other: nobody holds the ring in between
    Script s(owner, {.peer_index = static_cast<uint16_t>(100 + life)}, cq);
    s.play({{"post", s.post(1, 0, 100)},
            {"deliver", s.deliver(std::string(50, 'x')), Verdict::kDone,
             Effects{.completions = {{1, IBV_WC_SUCCESS, 50}}}}});
    ASSERT_FALSE(testing::Test::HasFailure()) << "connection " << life;
    s.qp->destroy();
  }
}

TEST(Ring, OfTheDeadIsGivenBack) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(4000);
  for (uint32_t epoch = 1; epoch <= 4000; ++epoch) {  // a server, and clients that come and go
    const auto ring = cq->inbound(kRequesterSlot, epoch);
    ASSERT_TRUE(ring) << "client " << epoch << ": " << ring.error().sentence;
    owner.process().peer_gone(kRequesterSlot, epoch);
  }
}

// Two threads of the requester's process share a ring; the owner polls, and posts what it used again.
TEST(Ring, CarriesFromThreadsToAnOwnerThatPolls) {
  constexpr uint64_t kMessages = 3000;
  constexpr uint32_t kBuffer = 20'000;
  OwnerProcess owner;
  const auto cq = owner.make_cq(64);
  std::vector<std::unique_ptr<Script>> scripts;
  for (const uint16_t index : {uint16_t{100}, uint16_t{101}}) {
    scripts.push_back(std::make_unique<Script>(owner, QpSetup{.peer_index = index, .receives = 8}, cq));
    for (uint64_t i = 0; i < 8; ++i) (void)scripts.back()->post(i, i * kBuffer, kBuffer)();
  }
  const auto length_of = [](uint64_t number) {
    return number % 16 == 0 ? 8193 + number % 10'000 : number * 37 % (number % 2 == 0 ? 32 : 3000);
  };
  const auto text_of_number = [&](uint64_t number) {
    return std::string(length_of(number), static_cast<char>('a' + number % 26));
  };
  std::vector<std::jthread> threads;
  for (const auto& script : scripts)
    threads.emplace_back([&, &s = *script] {
      for (uint64_t i = 0; i < kMessages;) {
        Verdict verdict = Verdict::kDone;
        if (length_of(i) <= Responder::kLongestInRing) {
          verdict = s.deliver(text_of_number(i))();
        } else {
          verdict = s.begin_receive({.length = length_of(i)})();
          if (verdict == Verdict::kDone) verdict = s.place(0, text_of_number(i))();
          while (verdict == Verdict::kDone &&
                 s.finish_receive({.length = length_of(i)})() == Verdict::kNoRoom)
            std::this_thread::yield();
        }
        if (verdict == Verdict::kDone)
          ++i;
        else if (verdict == Verdict::kNotReady || verdict == Verdict::kNoRoom)
          std::this_thread::yield();
        else
          return ADD_FAILURE() << "verdict " << static_cast<int>(verdict);
      }
    });
  std::map<uint32_t, uint64_t> got;
  for (uint64_t total = 0; total < 2 * kMessages && !testing::Test::HasFailure();) {
    ibv_wc completions[4];
    const int count = cq->poll(4, completions);
    for (int i = 0; i < count; ++i, ++total) {
      Script& s = *scripts[completions[i].qp_num == scripts[0]->qp->number().value ? 0 : 1];
      const uint64_t number = got[completions[i].qp_num]++;
      ASSERT_EQ(IBV_WC_SUCCESS, completions[i].status);
      ASSERT_EQ(number % 8, completions[i].wr_id);
      ASSERT_EQ(length_of(number), completions[i].byte_len);
      ASSERT_EQ(text_of_number(number), s.text_at(number % 8 * kBuffer, length_of(number)));
      (void)s.post(number % 8, number % 8 * kBuffer, kBuffer)();
    }
    if (count == 0) std::this_thread::yield();
  }
}

// ---- Bells ----

TEST(Bell, RingsOnceForWhatItIsArmedFor) {
  OwnerProcess owner;
  const auto channel = *CompletionChannel::create();
  const auto cq = owner.make_cq(64, channel.get());
  Script s(owner, {}, cq);
  for (uint64_t i = 0; i < 8; ++i) (void)s.post(i, 0, 16)();
  const Arrival solicited{.solicited = true};
  const auto rings_of = [&](const Arrival& arrival) {
    s.seen->rung.clear();
    EXPECT_EQ(Verdict::kDone, s.deliver("x", arrival)());
    for (const uint16_t queue : s.seen->rung) EXPECT_EQ(cq->index(), queue);
    return s.seen->rung.size();
  };
  EXPECT_EQ(0u, rings_of(solicited)) << "not armed";
  cq->arm(false);
  EXPECT_EQ(1u, rings_of({}));
  EXPECT_EQ(0u, rings_of({})) << "once";
  cq->arm(true);
  EXPECT_EQ(0u, rings_of({}));
  EXPECT_EQ(1u, rings_of(solicited));
  cq->arm(false);
  cq->arm(true);
  EXPECT_EQ(1u, rings_of({})) << "any isn't taken back by solicited";
}

TEST(Bell, RingsForAFailureEvenIfOnlySolicitedOnesAreWanted) {
  OwnerProcess owner;
  const auto channel = *CompletionChannel::create();
  const auto cq = owner.make_cq(64, channel.get());
  Script s(owner, {}, cq);
  cq->arm(true);
  const unsigned wakes = s.seen->wakes;
  s.play({{"fail", s.fail(Verdict::kBadKey), Verdict::kDone, kUnseen}});
  EXPECT_EQ(1u, s.seen->rung.size());
  EXPECT_EQ(wakes + 1, s.seen->wakes) << "its program may not poll at all";
}

// ---- Failure: DESIGN 2.8, the responder's column ----

TEST(Failure, HasTheEventOrTheCompletionOfItsCause) {
  struct Case {
    Verdict why;
    bool consumes;
    std::vector<Completed> completions;
    std::vector<ibv_event_type> events;
  };
  const Completed flushed{1, IBV_WC_WR_FLUSH_ERR};
  std::vector<Case> cases;
  for (const Verdict why : {Verdict::kBadKey, Verdict::kBadBounds, Verdict::kNoAccess, Verdict::kWrongDomain,
                            Verdict::kUnmapped}) {
    cases.push_back({why, false, {flushed}, {IBV_EVENT_QP_ACCESS_ERR}});
    cases.push_back({why, true, {{1, IBV_WC_LOC_ACCESS_ERR}}, {}});
  }
  for (const Verdict why : {Verdict::kNotEnabled, Verdict::kMisaligned})
    cases.push_back({why, false, {flushed}, {IBV_EVENT_QP_REQ_ERR}});
  cases.push_back({Verdict::kTooLong, false, {{1, IBV_WC_LOC_LEN_ERR}}, {}});
  cases.push_back({Verdict::kBadReceive, false, {{1, IBV_WC_LOC_PROT_ERR}}, {}});
  cases.push_back({Verdict::kCorrupt, false, {flushed}, {IBV_EVENT_QP_FATAL}});
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << "verdict " << static_cast<int>(one.why) << ", " << one.consumes);
    OwnerProcess owner;
    Script s(owner);
    s.play({{"post", s.post(1, 0, 100)},
            {"fail", s.fail(one.why, one.consumes), Verdict::kDone,
             Effects{.completions = one.completions, .events = one.events, .state = IBV_QPS_ERR}},
            {"no more", s.deliver("x"), Verdict::kSilence, Effects{.state = IBV_QPS_ERR}}});
  }
}

TEST(Failure, ComesAfterTheMessagesBeforeIt) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 100)},
          {"post", s.post(2, 0, 100)},
          {"post", s.post(3, 0, 100)},
          {"one", s.deliver("1"), Verdict::kDone, kUnseen},
          {"two", s.deliver("2"), Verdict::kDone, kUnseen},
          {"fail", s.fail(Verdict::kNoAccess), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 1}, {2, IBV_WC_SUCCESS, 1}, {3, IBV_WC_WR_FLUSH_ERR}},
                   .events = {IBV_EVENT_QP_ACCESS_ERR},
                   .state = IBV_QPS_ERR}}});
}

TEST(Failure, WithoutAReceiveIsAnEvent) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"fail", s.fail(Verdict::kTooLong), Verdict::kDone,
           Effects{.events = {IBV_EVENT_QP_REQ_ERR}, .state = IBV_QPS_ERR}}});
}

TEST(Failure, IsNoticedByTheHelperWhenNobodyPolls) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"fail", s.fail(Verdict::kBadKey), Verdict::kDone, kUnseen}});
  EXPECT_TRUE(owner.own_arena().bell(s.cq->index()).attention.get() & arena::kMerge);
  s.cq->merge();
  (void)owner.process().work();
  EXPECT_EQ(IBV_QPS_ERR, s.qp->state());
  EXPECT_EQ(std::vector{IBV_EVENT_QP_ACCESS_ERR}, owner.take_events());
}

TEST(Failure, ThatComesWhileAPollDoesOtherWorkIsConcludedToo) {
  OwnerProcess owner;
  Script s(owner);
  struct FailsIt final : Pending {
    explicit FailsIt(Script& script) : s(script) {}
    base::Instant go_on(base::Instant) override {
      EXPECT_EQ(Verdict::kDone, s.fail(Verdict::kBadKey)());
      return kNever;
    }
    Script& s;
  };
  owner.process().pending().add(std::make_shared<FailsIt>(s), base::now());
  s.expect({.events = {IBV_EVENT_QP_ACCESS_ERR}, .state = IBV_QPS_ERR});
}

TEST(Failure, OfOneQueuePairLeavesTheOthersOfTheRingAlone) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(64);
  Script bad(owner, {.peer_index = 100}, cq);
  Script good(owner, {.peer_index = 101}, cq);
  (void)good.post(1, 0, 100)();
  good.play({{"one fails", bad.fail(Verdict::kBadKey), Verdict::kDone, kUnseen},
             {"the other delivers", good.deliver("abc"), Verdict::kDone,
              Effects{.completions = {{1, IBV_WC_SUCCESS, 3}}, .events = {IBV_EVENT_QP_ACCESS_ERR}}}});
  EXPECT_EQ(IBV_QPS_ERR, bad.qp->state());
}

TEST(Failure, ThatNobodySawDoesntStopItsQueuePairFromGoing) {
  OwnerProcess owner;
  const auto cq = owner.make_cq(64);
  for (const bool destroys : {true, false}) {  // or just lets go of it
    auto qp = owner.make_qp(cq, {});
    Responder responder(owner.seen_from(kRequesterSlot), qp->number(), OwnerProcess::identity({}));
    ASSERT_EQ(Verdict::kDone, responder.fail(Verdict::kBadKey, false));
    if (destroys) qp->destroy();
    qp.reset();
    EXPECT_EQ(0, cq->users) << "else the queue can't be destroyed";
    EXPECT_TRUE(poll_all(*cq).empty());
  }
}

// The requester was told that its message arrived: an error of later must not take it back.
TEST(Failure, OfTheOwnersOwnDoingKeepsWhatWasDeliveredBefore) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"post", s.post(1, 0, 100)},
          {"post", s.post(2, 0, 100)},
          {"delivered", s.deliver("abc"), Verdict::kDone, kUnseen},
          {"owner", Script::owner([&] { OwnerProcess::move_to(*s.qp, IBV_QPS_ERR); }), Verdict::kDone,
           Effects{.completions = {{1, IBV_WC_SUCCESS, 3}, {2, IBV_WC_WR_FLUSH_ERR}},
                   .state = IBV_QPS_ERR,
                   .memory = {{0, "abc"}}}}});
}

class SleeperPostman final : public Postman {
 public:
  [[nodiscard]] bool has_letters() const override { return false; }
  bool read_letters() override { return false; }
  void wake_resting_helper() override { ++wakes; }
  unsigned wakes = 0;
};

// Who arms a queue may sleep next: a helper that rests because the program polls is told, once.
TEST(CompletionQueueArms, TellAHelperThatReliesOnPolls) {
  OwnerProcess owner;
  const auto postman = std::make_shared<SleeperPostman>();
  owner.process().set_postman(postman);
  const auto cq = owner.make_cq(8);
  cq->arm(false);
  EXPECT_EQ(postman->wakes, 0u);
  owner.process().rely_on_polls();
  cq->arm(false);
  cq->arm(true);
  EXPECT_EQ(postman->wakes, 1u);
  EXPECT_FALSE(owner.process().rely_no_more());
  owner.process().rely_on_polls();
  EXPECT_TRUE(owner.process().rely_no_more());
  cq->arm(false);
  EXPECT_EQ(postman->wakes, 1u);
}

}  // namespace
}  // namespace verbena::verbs
