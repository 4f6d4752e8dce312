// Everything at once: a requester's thread delivers and fails, while threads of the owner poll, post, change
// states and give regions back. Nothing is promised about who wins; but nothing crashes, hangs or is told
// twice, and ThreadSanitizer has something to look at.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "lies.hpp"
#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::RemoteUse;
using engine::Verdict;

constexpr size_t kBuffer = 16'384;

class Stage {
 public:
  explicit Stage(uint32_t seed) : seed_(seed) {
    for (uint16_t i = 0; i < 4; ++i)
      scripts_.push_back(std::make_unique<Script>(
          owner_, QpSetup{.peer_index = static_cast<uint16_t>(100 + i), .receives = 16}, queues_[i % 2]));
  }

  void run(uint64_t messages) {
    {
      std::vector<std::jthread> owners;
      owners.emplace_back([&] { poll(Random(seed_ * 4 + 1)); });
      owners.emplace_back([&] { change_states(Random(seed_ * 4 + 2)); });
      owners.emplace_back([&] { register_and_back(Random(seed_ * 4 + 3)); });
      request(Random(seed_ * 4), messages);
      stop_ = true;
    }
    for (const auto& script : scripts_) {
      if (script->qp->state() != IBV_QPS_RESET) OwnerProcess::move_to(*script->qp, IBV_QPS_RESET);
      count(*script->cq);
      // The queue pair is as good as new.
      owner_.connect(*script->qp, script->setup);
      (void)owner_.take_events();
      script->responder = std::make_unique<Responder>(script->seen, script->qp->number(),
                                                      OwnerProcess::identity(script->setup));
      script->play({{"post", script->post(1, 0, 100)},
                    {"deliver", script->deliver("abc"), Verdict::kDone,
                     Effects{.completions = {{1, IBV_WC_SUCCESS, 3}}, .memory = {{0, "abc"}}}}});
    }
    EXPECT_LE(completed_, delivered_);
  }

 private:
  Script& any(Random& random) { return *scripts_[random.below(scripts_.size())]; }

  void request(Random random, uint64_t messages) {
    while (delivered_ < messages) {
      Script& s = any(random);
      Verdict verdict = Verdict::kDone;
      const std::string text(random.below(3000), 'x');
      const Arrival long_one{.length = kBuffer};
      switch (random.below(8)) {
        case 0:
          verdict = s.begin_receive(long_one)();
          if (verdict == Verdict::kDone) verdict = s.place(0, std::string(kBuffer, 'y'))();
          if (verdict == Verdict::kDone && random.one_in(2)) {
            delivered_ += (verdict = s.finish_receive(long_one)()) == Verdict::kDone ? 1 : 0;
          }
          break;
        case 1:
          verdict = s.check(s.at(8 * kBuffer, 100), RemoteUse::kRead)();
          break;
        case 2:
          verdict = s.write(s.at(8 * kBuffer, text.size()), text)();
          break;
        case 3:
          if (random.one_in(20)) verdict = s.fail(Verdict::kBadKey)();
          break;
        default:
          delivered_ += (verdict = s.deliver(text)()) == Verdict::kDone ? 1 : 0;
          break;
      }
      if (verdict == Verdict::kSilence || random.one_in(64))  // the requester's own side was connected anew
        s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
      if (verdict != Verdict::kDone) std::this_thread::yield();
    }
  }

  void count(CompletionQueue& queue) {
    ibv_wc completions[4];
    for (int got = 0; (got = queue.poll(4, completions)) > 0;)
      for (int i = 0; i < got; ++i) completed_ += completions[i].status == IBV_WC_SUCCESS ? 1 : 0;
  }

  void poll(Random random) {
    while (!stop_) {
      count(*queues_[random.below(2)]);
      post(any(random), random);
      (void)owner_.process().work();
    }
  }

  void post(Script& s, Random& random) {
    ibv_sge piece{s.address(random.below(8) * kBuffer), kBuffer,
                  random.one_in(2) ? s.key : other_key_.load()};
    ibv_recv_wr request{.wr_id = 1, .sg_list = &piece, .num_sge = 1};
    (void)s.qp->post_recv(&request, nullptr);  // full, or in RESET: as it may be
  }

  void change_states(Random random) {
    while (!stop_) {
      Script& s = any(random);
      if (random.one_in(2)) OwnerProcess::move_to(*s.qp, IBV_QPS_ERR);
      if (random.one_in(2)) {
        OwnerProcess::move_to(*s.qp, IBV_QPS_RESET);
        owner_.connect(*s.qp, s.setup);
      }
      post(s, random);
      queues_[random.below(2)]->arm(random.one_in(2));
      (void)owner_.take_events();
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
    }
  }

  void register_and_back(Random random) {
    while (!stop_) {
      Script& s = any(random);
      const uint32_t key = owner_.register_memory(s.memory, IBV_ACCESS_LOCAL_WRITE);
      other_key_ = key;
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
      EXPECT_TRUE(owner_.process().deregister(key));
      queues_[random.below(2)]->merge();
    }
  }

  uint32_t seed_;
  OwnerProcess owner_;
  std::shared_ptr<CompletionQueue> queues_[2] = {owner_.make_cq(1 << 20), owner_.make_cq(1 << 20)};
  std::vector<std::unique_ptr<Script>> scripts_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> other_key_ = 0;
  uint64_t delivered_ = 0;               // by the requester's thread
  std::atomic<uint64_t> completed_ = 0;  // with success
};

TEST(OwnerStress, EverythingAtOnce) {
  for (uint32_t seed = 1; seed <= 4 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Stage(seed).run(400);
  }
}

class CountingPath final : public PathToNowhere {
 public:
  explicit CountingPath(unsigned& told) : told_(told) {}
  void tell_posted() override { ++told_; }

 private:
  unsigned& told_;
};

// A requester finds no receive and says that it waits, just while one is posted: either it sees the receive,
// or the poster sees that it waits. Were neither so, the message would wait for a timer.
TEST(OwnerStress, NobodyWaitsForAReceiveThatIsThere) {
  constexpr std::chrono::seconds kTime{1};
  OwnerProcess owner;
  unsigned told = 0;
  const QpSetup setup;
  const auto cq = owner.make_cq(64);
  const auto qp = owner.make_qp(cq, setup, [&] { return std::make_unique<CountingPath>(told); });
  Responder responder(owner.seen_from(kRequesterSlot), qp->number(), OwnerProcess::identity(setup));
  auto& waiting = owner.process().arena().binding(static_cast<uint16_t>(qp->number().value)).waiting;

  constexpr unsigned kOver = UINT32_MAX - 1;
  std::atomic<unsigned> round = 0;  // odd: both are at it
  std::atomic<bool> waits = false;
  std::atomic<unsigned> looked = 0;
  const std::jthread requester([&] {
    for (unsigned i = 0;; ++i) {
      while (round.load() != 2 * i + 1)
        if (round.load() == kOver) return;
      for (unsigned pause = i % 64; pause > 0; --pause) (void)responder.credits();  // as if it tried to send
      waits = responder.wait_for_receive();
      looked = i + 1;
    }
  });
  unsigned missed = 0;
  const auto end = std::chrono::steady_clock::now() + kTime;
  for (unsigned i = 0; std::chrono::steady_clock::now() < end; ++i) {
    told = 0;
    waiting.atomic().store(0);
    round = 2 * i + 1;
    ibv_recv_wr request{};
    EXPECT_EQ(qp->post_recv(&request, nullptr), 0);
    while (looked.load() != i + 1) {
    }
    if (waits && told == 0) ++missed;
    EXPECT_EQ(responder.deliver({}, {}), Verdict::kDone);
    EXPECT_EQ(poll_all(*cq).size(), 1u);
    round = 2 * i + 2;
  }
  round = kOver;
  EXPECT_EQ(missed, 0u);
}

}  // namespace
}  // namespace verbena::verbs
