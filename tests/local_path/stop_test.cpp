// A process that is stopped: what is done to its memory goes on without it, what needs it waits, and nobody
// else waits with it (P6, DESIGN 2.3).
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <iostream>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

using std::chrono::steady_clock;

int64_t milliseconds_since(steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin).count();
}

class StopOneSided : public testing::TestWithParam<const char*> {};

TEST_P(StopOneSided, WritesAndReadsComplete) {
  constexpr size_t kBytes = 64 << 20;
  Couple couple({.bytes = kBytes, .kind = GetParam()});
  couple.target.tell("fill m 0 67108864 9");
  couple.target.stop();
  for (const size_t length : {size_t{8}, size_t{4096}, size_t{1 << 20}, kBytes}) {
    SCOPED_TRACE(length);
    couple.requester.tell("fill m 0 67108864 5");
    EXPECT_EQ(couple.requester.run(couple.access("write", 0, length)).status, IBV_WC_SUCCESS);
    couple.requester.tell("fill m 0 67108864 0");
    EXPECT_EQ(couple.requester.run(couple.access("read", 0, kBytes)).status, IBV_WC_SUCCESS);
    EXPECT_EQ(couple.requester.count("m", 0, length, 5), length);
    EXPECT_EQ(couple.requester.count("m", length, kBytes - length, 9), kBytes - length);
  }
  couple.target.go_on();
  EXPECT_EQ(couple.target.count("m", 0, kBytes, 5), kBytes);
}

INSTANTIATE_TEST_SUITE_P(Memory, StopOneSided, testing::Values("heap", "shared"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Stop, AtomicsOnMappedMemoryComplete) {
  Couple couple({.kind = "shared"});
  couple.target.stop();
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(couple.requester.run(couple.add(64, 3)).status, IBV_WC_SUCCESS);
    ASSERT_EQ(couple.requester.word("m", 0), 3 * i);
  }
  EXPECT_EQ(couple.requester.run("cas q m 0 " + couple.there.at(64) + " 300 7").status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.requester.run("cas q m 0 " + couple.there.at(64) + " 300 8").status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.requester.word("m", 0), 7u);
  couple.target.go_on();
  EXPECT_EQ(couple.target.word("m", 64), 7u);
}

TEST(Stop, AtomicsOnPrivateMemoryWaitForTheOwner) {
  Couple couple;
  couple.target.stop();
  const uint64_t first = couple.requester.post(couple.add(8, 1));
  const uint64_t second = couple.requester.post(couple.add(8, 10));
  // Requests end in order: a write behind them waits too.
  const uint64_t third = couple.requester.post(couple.access("write", 4096, 4096));
  EXPECT_TRUE(couple.requester.poll(1, 300).empty());
  couple.target.go_on();
  const auto taken = couple.requester.poll(3, 5'000);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].id, first);
  EXPECT_EQ(taken[1].id, second);
  EXPECT_EQ(taken[2].id, third);
  for (const auto& one : taken) EXPECT_EQ(one.status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.target.word("m", 8), 11u);
}

TEST(Stop, AtomicsOnPrivateMemoryGiveUpAfterAllRetries) {
  Couple couple({.rules = kImpatient});
  couple.target.stop();
  const auto begin = steady_clock::now();
  couple.requester.post(couple.add(8, 1));
  couple.requester.post(couple.add(8, 1));
  const auto taken = couple.requester.poll(2, 10'000);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(taken[1].status, IBV_WC_WR_FLUSH_ERR);
  // 4.096 us * 2^12, three times; not much sooner and not much later.
  EXPECT_GE(milliseconds_since(begin), 33);
  EXPECT_LE(milliseconds_since(begin), 1'000 * SLOWDOWN);
  // The target goes on as if nothing had been, and a new connection works.
  couple.target.go_on();
  connect(couple.requester, "q", couple.requester_address, couple.target, "q", couple.target_address,
          kPatient);
  const uint64_t before = couple.target.word("m", 8);
  EXPECT_EQ(couple.requester.run(couple.add(8, 1)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.target.word("m", 8), before + 1);
}

// An adapter places messages whether the program runs or not: as many as receives were posted.
TEST(Stop, MessagesForPostedReceivesComplete) {
  for (const size_t length : {size_t{0}, size_t{16}, size_t{256}, size_t{8192}, size_t{300'000}}) {
    SCOPED_TRACE(length);
    constexpr size_t kReceives = 32;
    constexpr size_t kPlace = 300'000;
    Couple couple({.bytes = kReceives * kPlace, .rules = kImpatient});
    for (size_t i = 0; i < kReceives; ++i)
      couple.target.post("recv q m " + std::to_string(i * kPlace) + " " + std::to_string(kPlace));
    couple.target.stop();
    for (size_t i = 0; i < kReceives; ++i) {
      couple.requester.tell("fill m 0 " + std::to_string(length) + " " + std::to_string(i + 1));
      const auto one = couple.requester.run("send q m 0 " + std::to_string(length));
      ASSERT_EQ(one.status, IBV_WC_SUCCESS) << "message " << i << " of " << kReceives;
    }
    couple.target.go_on();
    const auto taken = couple.target.poll(kReceives, 5'000);
    ASSERT_EQ(taken.size(), kReceives);
    for (size_t i = 0; i < kReceives; ++i) {
      EXPECT_EQ(taken[i].status, IBV_WC_SUCCESS);
      EXPECT_EQ(taken[i].bytes, length);
      EXPECT_EQ(couple.target.count("m", i * kPlace, length, static_cast<int>(i + 1)), length);
    }
  }
}

// A request that failed ends the connection it was in, not the next one, however late its target learns of
// it.
TEST(Stop, AFailureEndsWithItsConnection) {
  Couple couple;
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    couple.target.stop();
    EXPECT_EQ(couple.requester.run("write q m 0 8 0 0").status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(couple.requester.connect("q", couple.target_address, kPatient), "done");
    // The first thing it does when it goes on.
    couple.target.say("connect q " + couple.requester_address + " 18 7 7");
    couple.target.go_on();
    EXPECT_EQ(couple.target.hear(), "done");
    ASSERT_EQ(couple.requester.run(couple.access("write", 0, 4096), 2'000).status, IBV_WC_SUCCESS);
  }
}

// Rings are small, and the target's helper thread empties them: whoever sleeps until then mustn't oversleep.
TEST(Stop, AFullRingIsNotATimeout) {
  constexpr Rules kSlow{.timeout = 19, .retries = 7};  // 2.1 s
  for (const char* length : {"16", "8000"}) {
    SCOPED_TRACE(length);
    Worker requester;
    Worker target;
    requester.queue("c", 4096, "events");
    target.queue("c", 4096, "events");
    (void)requester.region("m", 8192);
    (void)target.region("m", 8192);
    const std::string here = requester.pair("q", 1024);
    connect(requester, "q", here, target, "q", target.pair("q", 1024, "c"), kSlow);
    for (size_t i = 0; i < 1000; ++i) target.post("recv q m 0 8192");
    const auto begin = steady_clock::now();
    requester.tell("burst q m " + std::string(length) + " 1000");
    const std::string line = requester.ask("wait c 1000 12000");
    EXPECT_TRUE(line.starts_with("polled 1000 ")) << line.substr(0, 40);
    EXPECT_LT(milliseconds_since(begin), 1'000 * SLOWDOWN);
  }
}

TEST(Stop, TheAgentDelaysNoData) {
  Couple couple({.rules = kImpatient});
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  ::kill(*agent, SIGSTOP);
  EXPECT_EQ(couple.requester.run(couple.access("write", 0, 1 << 20)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.requester.run(couple.add(0, 1)).status, IBV_WC_SUCCESS);
  // They know each other: no introduction is needed.
  connect(couple.requester, "q", couple.requester_address, couple.target, "q", couple.target_address,
          kImpatient);
  couple.target.kill();
  EXPECT_EQ(couple.requester.run(couple.access("write", 0, 1 << 20)).status, IBV_WC_RETRY_EXC_ERR);
  ::kill(*agent, SIGCONT);
}

TEST(Stop, ConnectingToAStoppedProcess) {
  Worker requester;
  Worker target;
  const Region here = requester.region("m", 4096);
  const Region there = target.region("m", 4096);
  const std::string a = requester.pair("q");
  const std::string b = target.pair("q");
  EXPECT_EQ(target.connect("q", a, kPatient), "done");
  target.stop();
  EXPECT_EQ(requester.connect("q", b, kPatient), "done");
  EXPECT_EQ(requester.run("write q m 0 4096 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_NE(here.key, 0u);
  target.go_on();
}

// One process with a queue pair to a stopped process and another to one that runs.
class StopOneOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    requester_.queue("c", 256, "events");
    requester_.queue("other", 256, "events");
    requester_.region("m", 64 << 20);
    const std::string to_stopped = requester_.pair("s", 64, "other");
    const std::string to_running = requester_.pair("r", 64, "c");
    stopped_region_ = stopped_.region("m", 4096);
    running_region_ = running_.region("m", 64 << 20);
    connect(requester_, "s", to_stopped, stopped_, "q", stopped_.pair("q"), {.timeout = 20, .retries = 7});
    connect(requester_, "r", to_running, running_, "q", running_.pair("q"), kPatient);
  }
  void stop_one() {
    stopped_.stop();
    // It needs its owner, so it waits; for half a minute before it is given up.
    requester_.post("add s m 0 " + stopped_region_.at(0) + " 1");
    requester_.post("add s m 0 " + stopped_region_.at(0) + " 1");
  }
  // What a write to the running one costs, in nanoseconds of CPU: other than time, that hardly depends on
  // what else the machine does. The best of some, since caches are shared, too.
  int64_t cost(size_t length) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 6; ++i) {
      const auto begin = cpu_time(requester_.pid());
      const std::string line =
          requester_.ask("flood r c m " + std::to_string(length) + " " + running_region_.at(0) + " 50");
      const auto used = cpu_time(requester_.pid()) - begin;
      int64_t count = 0;
      int status = -1;
      EXPECT_EQ(std::sscanf(line.c_str(), "flooded %ld %d", &count, &status), 2) << line;
      EXPECT_EQ(status, IBV_WC_SUCCESS);
      if (count > 0) best = std::min(best, used.count() * 1000 / count);
    }
    return best;
  }
  void finish() {
    stopped_.go_on();
    const auto taken = requester_.poll(2, 5'000, "other");
    ASSERT_EQ(taken.size(), 2u);
    for (const auto& one : taken) EXPECT_EQ(one.status, IBV_WC_SUCCESS);
    EXPECT_EQ(stopped_.word("m", 0), 2u);
  }

  Worker requester_;
  Worker stopped_;
  Worker running_;
  Region stopped_region_;
  Region running_region_;
};

TEST_F(StopOneOfTwo, PollingTheOtherRunsAtFullSpeed) {
  constexpr size_t kLengths[] = {64, 4096, 1 << 20};
  std::vector<int64_t> before;
  for (const size_t length : kLengths) before.push_back(cost(length));
  stop_one();
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    const int64_t during = cost(kLengths[i]);
    std::cout << kLengths[i] << " bytes: " << before[i] << " ns, then " << during << "\n";
    // Each poll looks after what waits, too, a quarter of a microsecond; waiting for it would be seconds.
    EXPECT_LT(during, 3 * before[i]) << kLengths[i] << " bytes";
  }
  finish();
}

TEST_F(StopOneOfTwo, AsleepTheOtherIsServedAtOnce) {
  stop_one();
  // Nobody polls for a while: the helper thread has gone to sleep until the first retry, a second or more.
  pause_ms(50);
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    // Longer than what ibv_post_send copies itself, so the helper thread has to go on.
    requester_.post("write r m 0 33554432 " + running_region_.at(0));
    const auto begin = steady_clock::now();
    const std::string line = requester_.ask("wait c 1 10000");
    EXPECT_TRUE(line.starts_with("polled 1 ")) << line;
    EXPECT_LT(milliseconds_since(begin), 500 * SLOWDOWN);
  }
  finish();
}

// The requester itself is stopped in the middle of an access.
class StopRequester : public testing::Test {
 protected:
  StopRequester() : couple_({.bytes = 8 << 20, .kind = "shared", .environment = {"VERBENA_EXPLAIN=1"}}) {}

  // Stops the requester while it writes; again until ibv_dereg_mr finds it inside. False: never.
  bool stop_inside() {
    for (int tries = 0; tries < 60; ++tries) {
      couple_.requester.say("flood q c m 8388608 " + couple_.there.at(0) + " " +
                            std::to_string(kFloodMs * SLOWDOWN));
      pause_ms(5 + tries % 7);
      couple_.requester.stop();
      couple_.target.say("dereg m");
      if (!couple_.target.process().hear(support::Wait(100))) return true;
      // It was between two pieces. What it writes next is refused; everything anew.
      couple_.requester.go_on();
      (void)couple_.requester.hear();
      couple_.there = couple_.target.region("m", 0, "again");
      connect(couple_.requester, "q", couple_.requester_address, couple_.target, "q", couple_.target_address,
              kPatient);
    }
    return false;
  }

  static constexpr int kFloodMs = 60'000;
  Sayings sayings_;  // before the workers start, so that theirs are among them
  Couple couple_;
};

TEST_F(StopRequester, OtherRegionsGoAtOnce) {
  couple_.target.region("other", 1 << 20, "shared");
  couple_.requester.say("flood q c m 8388608 " + couple_.there.at(0) + " 400");
  for (int i = 0; i < 20; ++i) {
    pause_ms(3);
    couple_.requester.stop();
    const auto begin = steady_clock::now();
    couple_.target.tell("dereg other");
    EXPECT_LT(milliseconds_since(begin), 100 * SLOWDOWN);
    (void)couple_.target.region("other", 0, "again");
    couple_.requester.go_on();
  }
  EXPECT_TRUE(couple_.requester.hear().ends_with(" 0"));
}

TEST_F(StopRequester, ThatRegionWaitsUntilItGoesOn) {
  ASSERT_TRUE(stop_inside());
  EXPECT_FALSE(couple_.target.process().hear(support::Wait(1'500)));
  couple_.requester.go_on();
  EXPECT_TRUE(couple_.target.hear().starts_with("done "));
  EXPECT_TRUE(couple_.requester.hear().ends_with(" " + std::to_string(IBV_WC_REM_ACCESS_ERR)));
  const std::string said = sayings_.take();
  EXPECT_NE(said.find("deregistering a memory region waits for the process in slot"), std::string::npos)
      << said;
}

TEST_F(StopRequester, ThatRegionWaitsUntilItIsKilled) {
  ASSERT_TRUE(stop_inside());
  EXPECT_FALSE(couple_.target.process().hear(support::Wait(300)));
  couple_.requester.kill();
  EXPECT_TRUE(couple_.target.hear(support::Wait(3'000 * SLOWDOWN)).starts_with("done "));
  // The memory is the program's again, and the queue pair still answers others.
  couple_.target.tell("fill m 0 8388608 3");
  Worker newcomer;
  (void)newcomer.region("m", 8 << 20);
  couple_.there = couple_.target.region("m", 0, "again");
  connect(newcomer, "q", newcomer.pair("q"), couple_.target, "q", couple_.target_address, kPatient);
  EXPECT_EQ(newcomer.run("read q m 0 8388608 " + couple_.there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(newcomer.count("m", 0, 8 << 20, 3), size_t{8 << 20});
}

}  // namespace
}  // namespace verbena::local_path
