#include "verbs/work_list.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace verbena::verbs {
namespace {

using base::Instant;

constexpr Instant kNow{1'000'000};
constexpr Instant kNever = Pending::kNever;

// Does what a test says; by default it is idle after one go.
struct Work final : Pending {
  explicit Work(std::function<Instant(Instant)> does = [](Instant) { return kNever; })
      : does_(std::move(does)) {}
  Instant go_on(Instant now) override {
    ++goes;
    return does_(now);
  }
  unsigned goes = 0;

 private:
  std::function<Instant(Instant)> does_;
};

std::shared_ptr<Work> work(std::function<Instant(Instant)> does) {
  return std::make_shared<Work>(std::move(does));
}

TEST(WorkList, HasNothingAtFirst) {
  WorkList list;
  EXPECT_FALSE(list.any());
  EXPECT_FALSE(list.step(kNow));
  EXPECT_EQ(kNever, list.run_all(kNow));
}

TEST(WorkList, ForgetsTheIdle) {
  WorkList list;
  const auto idle = std::make_shared<Work>();
  list.add(idle, kNow);
  EXPECT_TRUE(list.any());
  EXPECT_FALSE(list.step(kNow)) << "none is left";
  EXPECT_FALSE(list.any());
  EXPECT_EQ(1u, idle->goes);
  EXPECT_EQ(1, idle.use_count());
  list.add(idle, kNow);
  EXPECT_EQ(kNever, list.run_all(kNow));
  EXPECT_EQ(2u, idle->goes);
}

TEST(WorkList, LetsEverybodyGoOnInTurn) {
  WorkList list;
  std::string order;
  for (const char name : {'a', 'b', 'c'})
    list.add(work([&order, name](Instant now) {
               order += name;
               return now;
             }),
             kNow);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(list.step(kNow));
  EXPECT_EQ("abcabcabc", order);
  EXPECT_EQ(kNow.ns, list.run_all(kNow).ns);
  EXPECT_EQ("abcabcabcabc", order) << "each one once";
}

TEST(WorkList, ANewcomerWaitsForOneRoundAtMost) {
  WorkList list;
  std::string order;
  const auto busy = [&order](char name) {
    return work([&order, name](Instant now) {
      order += name;
      return now;
    });
  };
  list.add(busy('a'), kNow);
  list.add(busy('b'), kNow);
  list.step(kNow);
  list.add(busy('c'), kNow);
  for (int i = 0; i < 5; ++i) list.step(kNow);
  EXPECT_EQ("abacba", order);
}

TEST(WorkList, TwiceIsOnceAndTheEarlierCounts) {
  WorkList list;
  const auto twice = work([](Instant) { return Instant{5'000'000}; });
  list.add(twice, Instant{9'000'000});
  list.add(twice, Instant{2'000'000});
  list.add(twice, Instant{7'000'000});
  list.step(kNow);
  EXPECT_EQ(1u, twice->goes);
  EXPECT_EQ(Instant{5'000'000}, list.run_all(kNow));
  EXPECT_EQ(2u, twice->goes);
}

TEST(WorkList, LetsThoseGoOnThatArentDueYet) {
  WorkList list;
  const auto waits = work([](Instant) { return Instant{9'000'000}; });
  list.add(waits, Instant{9'000'000});
  EXPECT_TRUE(list.step(kNow)) << "what it waits for may have come early";
  EXPECT_EQ(1u, waits->goes);
}

TEST(WorkList, TellsWhenTheFirstIsDue) {
  WorkList list;
  for (const int64_t due : {7, 3, 5}) list.add(work([due](Instant) { return Instant{due}; }), kNow);
  list.add(work([](Instant) { return kNever; }), kNow);
  EXPECT_EQ(Instant{3}, list.run_all(kNow));
}

TEST(WorkList, MayBeAddedToFromInside) {
  WorkList list;
  const auto other = std::make_shared<Work>();
  std::shared_ptr<Work> self;
  unsigned left = 3;
  self = work([&](Instant now) {
    list.add(other, now);
    if (--left > 0) list.add(self, now);  // as a post does that finds it waiting
    return kNever;
  });
  list.add(self, kNow);
  while (list.step(kNow)) {
  }
  EXPECT_FALSE(list.any());
  EXPECT_EQ(3u, self->goes);
  EXPECT_GE(other->goes, 2u);
  self.reset();
}

TEST(WorkList, KeepsTheEarlierTimeOfOneThatWasAddedWhileItWentOn) {
  WorkList list;
  std::shared_ptr<Work> self;
  self = work([&](Instant) {
    list.add(self, Instant{900'000'000});  // what another thread knew before us
    return kNow;                           // what we found since: go on at once
  });
  list.add(self, kNow);
  EXPECT_EQ(kNow.ns, list.run_all(kNow).ns);
  self.reset();
}

TEST(WorkList, CallsTheHelperForTheFirstEntry) {
  WorkList list;
  unsigned calls = 0;
  list.context = &calls;
  list.on_first = [](void* context) { ++*static_cast<unsigned*>(context); };
  const auto one = std::make_shared<Work>();
  list.add(one, kNow);
  EXPECT_EQ(1u, calls);
  list.add(one, kNow);
  EXPECT_EQ(1u, calls);
  list.step(kNow);
  list.add(one, kNow);
  EXPECT_EQ(2u, calls);
}

// The helper sleeps until the first is due: if nobody polls, nobody else would look earlier.
TEST(WorkList, CallsTheHelperForOneThatIsDueBeforeAllOthers) {
  WorkList list;
  unsigned calls = 0;
  list.context = &calls;
  list.on_first = [](void* context) { ++*static_cast<unsigned*>(context); };
  const auto patient = work([](Instant) { return Instant{700'000'000'000}; });
  list.add(patient, kNow);
  EXPECT_EQ(Instant{700'000'000'000}, list.run_all(kNow));
  calls = 0;
  list.add(std::make_shared<Work>(), kNow);
  EXPECT_EQ(1u, calls);
  list.add(patient, kNow);
  EXPECT_LE(calls, 2u);
}

// A thread that polls has one go on while the helper asks when to come again, and then polls no more.
TEST(WorkList, CallsTheHelperForOneThatWentOnWhenItAsked) {
  WorkList list;
  unsigned calls = 0;
  list.context = &calls;
  list.on_first = [](void* count) { ++*static_cast<unsigned*>(count); };
  const Instant later{kNow.ns + 1'000'000};
  list.add(work([&](Instant) { return later; }), later);
  Instant answer{};
  list.add(work([&](Instant) {
             if (answer == Instant{}) answer = list.run_all(kNow);
             return kNow;
           }),
           later);
  (void)list.step(kNow);
  calls = 0;
  (void)list.step(kNow);
  EXPECT_EQ(later, answer) << "what goes on isn't in the list";
  EXPECT_EQ(1u, calls);
  (void)list.step(kNow);
  (void)list.step(kNow);
  EXPECT_EQ(1u, calls) << "it knows";
}

TEST(WorkList, LosesNobodyWhenThreadsShareIt) {
  constexpr unsigned kWorks = 8;
  constexpr unsigned kRounds = 500;
  struct Counted final : Pending {
    Instant go_on(Instant now) override { return left.fetch_sub(1) > 1 ? now : kNever; }
    std::atomic<int> left = kRounds;
  };
  WorkList list;
  std::vector<std::shared_ptr<Counted>> works;
  for (unsigned i = 0; i < kWorks; ++i) works.push_back(std::make_shared<Counted>());
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        for (const auto& one : works) list.add(one, kNow);
        while (list.any()) list.step(kNow);
      });
  }
  EXPECT_FALSE(list.any());
  for (const auto& one : works) {
    EXPECT_LE(one->left, 0);
    EXPECT_EQ(1, one.use_count());
  }
}

}  // namespace
}  // namespace verbena::verbs
