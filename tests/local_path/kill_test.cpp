// Processes that are killed at any instruction, or become another program (P6). Whoever is left gets what
// hardware would give it (DESIGN 2.8), and can go on with somebody else.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <sstream>

#include "local_path/stream.hpp"
#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

using std::chrono::steady_clock;

StreamReport parse(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  StreamReport report;
  words >> what >> report.first_error >> report.flushed >> report.wrong_status >> report.done >>
      report.received >> report.bad >> report.receives_waiting >> report.receives_failed >> report.hung;
  EXPECT_EQ(what, "streamed") << line;
  return report;
}

// One end of a stream.
struct End {
  Worker worker;
  Region memory;
  std::string address;
  uint64_t seed = 0;

  explicit End(uint64_t stream_seed, const std::string& kind = "heap") : seed(stream_seed) {
    worker.queue("c", 256, "events");
    memory = worker.region("m", kStreamBytes, kind);
    address = worker.pair("q");
  }
  void begin(const End& peer, int64_t milliseconds, const std::string& how) {
    worker.say("stream q c m " + std::to_string(seed) + " " + std::to_string(peer.seed) + " " +
               peer.memory.at(0) + " " + std::to_string(milliseconds) + " " + how);
  }
  // Its word for the peer's atomics must be fresh before the peer can reach it.
  void ready() { worker.tell("setword m 0 0"); }
};

void join(End& a, End& b, const Rules& rules) {
  a.ready();
  b.ready();
  connect(a.worker, "q", a.address, b.worker, "q", b.address, rules);
}

void expect_good(const StreamReport& report) {
  EXPECT_EQ(report.first_error, 0) << ibv_wc_status(report.first_error);
  EXPECT_EQ(report.bad, 0u);
  EXPECT_EQ(report.hung, 0u);
  EXPECT_EQ(report.receives_failed, 0u);
}

// The survivor's receives: they stay until its queue pair is moved to ERR, and are flushed then, all of them.
void expect_receives_stay(Worker& survivor, size_t waiting, bool in_error) {
  if (!in_error) {
    // What had arrived before the end counts, though it is only taken now.
    const auto late = survivor.poll(waiting, 20);
    for (const auto& one : late) EXPECT_EQ(one.status, IBV_WC_SUCCESS);
    waiting -= late.size();
    survivor.tell("state q error");
  }
  const auto taken = survivor.poll(waiting, 5'000);
  EXPECT_EQ(taken.size(), waiting);
  for (const auto& one : taken) EXPECT_EQ(one.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(survivor.poll(1, 0).empty()) << "a receive completed twice";
}

const char* how(uint64_t random) { return random % 3 == 0 ? "sleeps" : "polls"; }

class Kill : public testing::Test {
 protected:
  // One victim more. `survivor` streams with it until it dies, or only receives.
  void kill_one(End& survivor, uint64_t seed, int end_signal) {
    std::mt19937_64 random(seed);
    End victim(seed * 2 + 1, random() % 2 == 0 ? "heap" : "shared");
    const uint64_t when = random() % 20;
    const bool passive = when > 2 && random() % 5 == 0;
    if (when == 0) {
      // Dead before anybody is connected to it.
      victim.worker.kill();
      EXPECT_EQ(survivor.worker.connect("q", victim.address, kImpatient), "done");
      survivor.begin(victim, 60'000, "polls");
    } else if (when <= 2) {
      // While both are connecting.
      const auto connect_to = [](const End& peer) { return "connect q " + peer.address + " 12 2 7"; };
      survivor.ready();
      victim.worker.say(connect_to(survivor));
      survivor.worker.say(connect_to(victim));
      ::usleep(static_cast<useconds_t>(random() % 3'000));
      victim.worker.process().signal(end_signal);
      EXPECT_EQ(survivor.worker.hear(), "done");
      survivor.begin(victim, 60'000, "polls");
    } else {
      join(survivor, victim, kImpatient);
      victim.begin(survivor, 60'000, how(random()));
      survivor.begin(victim, passive ? 40 : 60'000, passive ? "passive" : how(random()));
      ::usleep(static_cast<useconds_t>(random() % 25'000));
      victim.worker.process().signal(end_signal);
    }
    const auto begin = steady_clock::now();
    const StreamReport report = parse(survivor.worker.hear());
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin).count();
    EXPECT_EQ(report.bad, 0u);
    EXPECT_EQ(report.hung, 0u);
    EXPECT_EQ(report.wrong_status, 0u);
    if (passive) {
      EXPECT_EQ(report.first_error, 0);
      EXPECT_EQ(report.receives_failed, 0u);
    } else {
      EXPECT_EQ(report.first_error, IBV_WC_RETRY_EXC_ERR);
    }
    EXPECT_LT(waited, 1'500 * SLOWDOWN);
    // Going to ERR flushes the receives, too: those that the stream saw and those that it left.
    expect_receives_stay(survivor.worker, report.receives_waiting, !passive);
    operations_ += report.done + report.received;
  }

  size_t operations_ = 0;
};

TEST_F(Kill, TwoHundredAtRandomInstants) {
  // Two survivors, each with the same queue pair for all its peers.
  End a(1);
  End b(2, "shared");
  const auto begin = steady_clock::now();
  constexpr uint64_t kKills = SLOWDOWN == 1 ? 220 : 40;
  // Other seeds for whoever looks for more.
  const char* wanted = std::getenv("LOCAL_PATH_SEED");
  const uint64_t first = wanted != nullptr ? std::stoull(wanted) : 1;
  for (uint64_t seed = first; seed < first + kKills && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    kill_one(seed % 2 == 0 ? a : b, seed, SIGKILL);
  }
  // Whatever they went through, they are as good as new.
  join(a, b, kPatient);
  a.begin(b, 200, "polls");
  b.begin(a, 200, "polls");
  expect_good(parse(a.worker.hear()));
  expect_good(parse(b.worker.hear()));
  EXPECT_GT(operations_, kKills * 10) << "the victims died before they did anything";
  std::cout << kKills << " kills, " << operations_ << " operations, "
            << std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin).count()
            << " ms\n";
}

TEST_F(Kill, ExecIsADeath) {
  End survivor(1);
  for (uint64_t seed = 1001; seed <= 1020 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    kill_one(survivor, seed, SIGUSR1);
  }
}

// Nobody dies: the stream itself, by polling and by events.
TEST_F(Kill, NobodyAtAll) {
  for (const char* kind : {"heap", "shared"})
    for (const char* first : {"polls", "sleeps"})
      for (const char* second : {"polls", "sleeps"}) {
        SCOPED_TRACE(std::string(kind) + " " + first + " " + second);
        End a(1);
        End b(2, kind);
        join(a, b, kPatient);
        a.begin(b, 200 * kLonger, first);
        b.begin(a, 200 * kLonger, second);
        expect_good(parse(a.worker.hear()));
        expect_good(parse(b.worker.hear()));
      }
}

TEST_F(Kill, TheAgentInTheMiddleOfTraffic) {
  End a(1);
  End b(2, "shared");
  for (int round = 0; round < 6 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    join(a, b, kPatient);
    a.begin(b, 150 * kLonger, round % 2 == 0 ? "polls" : "sleeps");
    b.begin(a, 150 * kLonger, round % 2 == 0 ? "polls" : "sleeps");
    pause_ms(10 + 15 * round);
    if (const auto agent = support::agent_pid()) ::kill(*agent, SIGKILL);
    const StreamReport at_a = parse(a.worker.hear());
    const StreamReport at_b = parse(b.worker.hear());
    expect_good(at_a);
    expect_good(at_b);
    EXPECT_GT(at_a.done, 50u / SLOWDOWN);
    EXPECT_GT(at_b.done, 50u / SLOWDOWN);
  }
}

// Killed together with the agent, the victim is found dead all the same.
TEST_F(Kill, VictimAndAgentTogether) {
  End survivor(1);
  for (uint64_t seed = 1; seed <= 5 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    End victim(seed * 2 + 1);
    join(survivor, victim, kImpatient);
    victim.begin(survivor, 60'000, "polls");
    survivor.begin(victim, 60'000, "polls");
    pause_ms(10);
    if (const auto agent = support::agent_pid()) ::kill(*agent, SIGKILL);
    victim.worker.kill();
    const StreamReport report = parse(survivor.worker.hear());
    EXPECT_EQ(report.first_error, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(report.bad + report.hung + report.wrong_status, 0u);
    expect_receives_stay(survivor.worker, report.receives_waiting, true);
  }
}

// Whoever rings a channel that nobody reads any more gets no SIGPIPE: that would be a death, too.
TEST_F(Kill, RingingTheDead) {
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Couple couple({.rules = kImpatient, .queues = "events"});
    for (int receive = 0; receive < 4; ++receive) couple.target.post("recv q m 0 64");
    couple.target.say("wait c 1 10000");
    pause_ms(5);
    EXPECT_EQ(couple.requester.run("send q m 0 64").status,
              IBV_WC_SUCCESS);  // it knows the channel from now on
    EXPECT_TRUE(couple.target.hear().starts_with("polled 1 "));
    couple.target.say("wait c 1 10000");
    pause_ms(5);
    // It doesn't see the end of the other before it has sent another message, or at the same moment.
    couple.requester.stop();
    couple.target.kill();
    couple.requester.say("send q m 0 64");
    couple.requester.go_on();
    EXPECT_TRUE(couple.requester.hear().starts_with("posted "));
    EXPECT_EQ(couple.requester.poll(1, 5'000).size(), 1u);
  }
}

// Nobody polls: the helper thread must find out.
TEST_F(Kill, SeenAsleep) {
  Couple couple({.rules = kImpatient, .queues = "events"});
  couple.target.stop();  // so that the atomic waits
  couple.requester.post(couple.add(0, 1));
  couple.requester.say("wait c 1 10000");
  pause_ms(10);
  couple.target.kill();
  EXPECT_EQ(couple.requester.hear(), "polled 1 1:" + std::to_string(IBV_WC_RETRY_EXC_ERR) + ":8");
}

// timeout 0 means "for ever", but the dead are known: at once (DESIGN 2.8).
TEST_F(Kill, EndlessTimeoutEndsWithTheDead) {
  for (const bool dies_first : {false, true}) {
    SCOPED_TRACE(dies_first);
    Couple couple({.rules = {.timeout = 0, .retries = 7}});
    if (dies_first) {
      couple.target.kill();
      pause_ms(50);
    } else {
      couple.target.stop();
    }
    couple.requester.post(couple.add(0, 1));
    couple.requester.post(couple.access("write", 0, 8));
    if (!dies_first) {
      EXPECT_TRUE(couple.requester.poll(1, 300).empty());
      couple.target.kill();
    }
    const auto taken = couple.requester.poll(2, 1'000 * SLOWDOWN);
    ASSERT_EQ(taken.size(), 2u);
    EXPECT_EQ(taken[0].status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(taken[1].status, IBV_WC_WR_FLUSH_ERR);
  }
}

// DESIGN 2.8: the requester dies inside a SEND, and the receive returns to the queue's head.
TEST_F(Kill, InsideALongMessage) {
  constexpr size_t kBytes = 256 << 20;
  const std::string whole = std::to_string(kBytes);
  Worker target;
  (void)target.region("m", kBytes);
  const std::string target_address = target.pair("q");
  int inside = 0;
  for (int round = 0; round < 12 && inside < 3 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Worker requester;
    (void)requester.region("m", kBytes);
    requester.tell("fill m 0 " + whole + " 7");
    target.tell("fill m 0 " + whole + " 1");
    connect(requester, "q", requester.pair("q"), target, "q", target_address, kImpatient);
    const uint64_t first = target.post("recv q m 0 " + whole);
    const uint64_t second = target.post("recv q m 0 " + whole);
    requester.say("send q m 0 " + whole);
    pause_ms(5 + round);
    requester.kill();
    const size_t arrived = target.count("m", 0, kBytes, 7);
    const auto taken = target.poll(1, 20);
    if (arrived == 0 || arrived == kBytes || !taken.empty()) continue;  // too early, or too late
    ++inside;
    // Both receives are there still, in their order.
    target.tell("state q error");
    const auto flushed = target.poll(2, 2'000);
    ASSERT_EQ(flushed.size(), 2u);
    EXPECT_EQ(flushed[0].id, first);
    EXPECT_EQ(flushed[1].id, second);
    for (const auto& one : flushed) EXPECT_EQ(one.status, IBV_WC_WR_FLUSH_ERR);

    // A new requester's message gets the receive at the head, whole and not mixed with the old one.
    Worker newcomer;
    (void)newcomer.region("m", 1 << 20);
    newcomer.tell("fill m 0 1048576 9");
    connect(newcomer, "q", newcomer.pair("q"), target, "q", target_address, kImpatient);
    const uint64_t next = target.post("recv q m 0 " + whole);
    EXPECT_EQ(newcomer.run("send q m 0 1048576").status, IBV_WC_SUCCESS);
    const auto received = target.poll(1, 2'000);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].id, next);
    EXPECT_EQ(received[0].bytes, 1u << 20);
    EXPECT_EQ(target.count("m", 0, 1 << 20, 9), size_t{1 << 20});
  }
  EXPECT_GE(inside, 1) << "no requester died inside its message";
}

}  // namespace
}  // namespace verbena::local_path
