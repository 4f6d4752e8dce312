// A requester of ours and an owner whose tables lie: it is found out, or believed where only it is harmed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "lies.hpp"
#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::Copied;
using engine::RemoteUse;
using engine::Verdict;

using VerdictCounts = std::array<unsigned, static_cast<size_t>(engine::kLastVerdict) + 1>;

void post_some(Script& s, unsigned count) {
  for (uint64_t i = 0; i < count; ++i) (void)s.post(i, 4096, 100)();
}

// Everything that a requester can ask. The owner's addresses lead nowhere: nothing is copied.
void ask_everything(Script& s, Random& random, VerdictCounts& verdicts) {
  const auto count = [&](Verdict verdict) {
    ASSERT_LE(static_cast<unsigned>(verdict), static_cast<unsigned>(engine::kLastVerdict));
    ++verdicts[static_cast<unsigned>(verdict)];
  };
  const Arrival long_one{.length = random.one_in(2) ? random.below(1 << 20) : random.below(300)};
  const engine::RemoteRange range{random.one_in(4) ? static_cast<uint32_t>(random.wild()) : s.key,
                                  random.one_in(4) ? random.wild() : s.address(random.below(1000)),
                                  random.below(100)};
  count(s.check(range, random.one_in(2) ? RemoteUse::kRead : RemoteUse::kWrite)());
  count(s.write(range, std::string(range.length, 'w'))());
  std::string into(range.length, '?');
  const iovec here{into.data(), into.size()};
  count(s.responder->read(range, {&here, 1}, engine::Tail::kLast));
  count(s.atomic({engine::AtomicKind::kFetchAdd, range.key, range.address & ~uint64_t{7}, 1})());
  const Verdict begun = s.begin_receive(long_one)();
  count(begun);
  if (begun == Verdict::kDone) {
    count(s.place(random.one_in(4) ? random.below(1 << 20) : 0, std::string(random.below(300), 'p'))());
    if (random.one_in(2)) count(s.finish_receive(long_one)());
  }
  count(s.deliver(std::string(random.below(8193), 'd'))());
  (void)s.responder->receive_waits();
  if (random.one_in(16)) count(s.fail(static_cast<Verdict>(random.below(16)))());
}

// What an owner publishes about a queue pair, its receives and a region, while it was still true.
class Truth {
 public:
  explicit Truth(Script& s)
      : receives_at(s.owner_process.own_arena().qp(index_of(s)).receives_at.get()),
        qp_(&s.owner_process.own_arena().qp(index_of(s)), sizeof(arena::QpEntry)),
        mr_(&s.owner_process.own_arena().mr(s.key >> 8), sizeof(arena::MrEntry)),
        receives_(s.owner_process.own_arena().in_tables_heap(receives_at, kReceives), kReceives) {}
  void restore() const {
    for (const Words* words : {&receives_, &mr_, &qp_}) words->restore();
  }
  const uint64_t receives_at;

 private:
  static constexpr size_t kReceives = 32 * 80;
  struct Words {
    Words(void* memory, size_t size) : at(static_cast<std::atomic<uint64_t>*>(memory)), saved(size / 8) {
      for (size_t i = 0; i < saved.size(); ++i) saved[i] = at[i].load();
    }
    void restore() const {
      for (size_t i = saved.size(); i > 0; --i) at[i - 1].store(saved[i - 1]);  // its first word last
    }
    std::atomic<uint64_t>* at;
    std::vector<uint64_t> saved;
  };
  Words qp_;
  Words mr_;
  Words receives_;
};

// One word of it becomes a lie.
void lie_somewhere(Script& s, const Truth& truth, Random& random) {
  const arena::ProcessArena& own = s.owner_process.own_arena();
  auto& qp = own.qp(index_of(s));
  auto& mr = own.mr(s.key >> 8);
  const uint64_t value = random.wild();
  const auto word = static_cast<uint32_t>(value);
  auto* receive = reinterpret_cast<arena::ReceiveEntry*>(own.in_tables_heap(truth.receives_at, 4096) +
                                                         random.below(16) * 80);
  auto* piece = reinterpret_cast<arena::ReceivePiece*>(receive + 1);
  arena::Shared<uint32_t>* const words[] = {
      &qp.access,     &qp.domain,       &qp.cq,     &qp.receives_mask, &qp.receives_stride, &qp.ring_id,
      &qp.ring_slots, &qp.ring_payload, &qp.posted, &qp.fits_plus_one, &receive->capacity,  &piece->length,
      &piece->lkey,   &mr.domain,       &mr.access, &mr.mode};
  arena::Shared<uint64_t>* const longs[] = {&qp.receives_at, &qp.ring_at, &piece->address, &mr.word,
                                            &mr.iova,        &mr.length,  &mr.address};
  switch (random.below(4)) {
    case 0:
      longs[random.below(std::size(longs))]->set(value);
      break;
    case 1:
      receive->count.set(static_cast<uint16_t>(value));
      break;
    default:
      words[random.below(std::size(words))]->set(word);
      break;
  }
  // Another version: so that what was cached is looked at anew.
  auto now = arena::QpWord::unpack(qp.word.get());
  now.version += 1;
  if (random.one_in(16)) now.state = static_cast<uint8_t>(value);
  if (random.one_in(16)) now.incarnation = word;
  qp.word.release(now.pack());
}

TEST(LyingOwner, IsFoundOutOrIgnoredOver300Seeds) {
  VerdictCounts verdicts{};
  OwnerProcess honest_owner;
  Script honest(honest_owner, {.receives = 64});
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    OwnerProcess owner;
    Script s(owner);
    post_some(s, 16);
    s.seen->atomics_here = false;
    const Truth truth(s);
    for (int step = 0; step < 24; ++step) {
      if (random.one_in(3)) truth.restore();
      s.seen->scripted_memory().instead = random.one_in(4) ? Copied::kFaultThere : Copied::kAll;
      lie_somewhere(s, truth, random);
      ask_everything(s, random, verdicts);
      if (random.one_in(4))
        s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
    }
    honest.play({{"post", honest.post(seed, 0, 100)},
                 {"deliver", honest.deliver("abc"), Verdict::kDone,
                  Effects{.completions = {{seed, IBV_WC_SUCCESS, 3}}}}});
    truth.restore();
  }
  EXPECT_GT(verdicts[static_cast<unsigned>(Verdict::kCorrupt)], 50u) << "the test doesn't test";
  EXPECT_GT(verdicts[static_cast<unsigned>(Verdict::kDone)], 1000u);
}

TEST(LyingOwner, MayLieWhileWeLook) {
  OwnerProcess owner;
  Script s(owner);
  post_some(s, 16);
  s.seen->atomics_here = false;
  s.seen->scripted_memory().instead = Copied::kAll;
  const Truth truth(s);
  std::atomic<bool> stop = false;
  std::jthread lies([&] {
    Random random(1);
    while (!stop) {
      lie_somewhere(s, truth, random);
      if (random.one_in(4)) truth.restore();
    }
    truth.restore();
  });
  VerdictCounts verdicts{};
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    ask_everything(s, random, verdicts);
    if (i % 4 == 0)
      s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
  }
  stop = true;
  EXPECT_GT(verdicts[static_cast<unsigned>(Verdict::kDone)], 100u) << "the test doesn't test";
}

}  // namespace
}  // namespace verbena::verbs
