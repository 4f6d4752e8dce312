// Who does nothing costs nothing (P7): neither a connected pair at rest, nor a target that is only written
// to.
#include <gtest/gtest.h>
#include <signal.h>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

using std::chrono::microseconds;

// Several readings of one second: on a busy machine a wakeup of the test itself may fall into one.
constexpr microseconds kAllowed{5'000 * SLOWDOWN};

class Meter {
 public:
  explicit Meter(const Worker& worker) : pid_(worker.pid()), begin_(cpu_time(pid_)) {}
  [[nodiscard]] microseconds used() const { return cpu_time(pid_) - begin_; }

 private:
  pid_t pid_;
  microseconds begin_;
};

void expect_idle(const std::vector<const Worker*>& workers) {
  pause_ms(50);  // what they were doing comes to its end
  std::vector<Meter> meters;
  for (const auto* worker : workers) meters.emplace_back(*worker);
  pause_ms(1'000);
  for (size_t i = 0; i < meters.size(); ++i)
    EXPECT_LT(meters[i].used().count(), kAllowed.count()) << "microseconds of CPU, worker " << i;
}

// A little of everything, so that everything that could stay awake was woken.
void warm_up(Couple& couple) {
  couple.target.post("recv q m 0 65536");
  EXPECT_EQ(couple.requester.run("send q m 0 1000").status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.target.poll(1, 2'000).size(), 1u);
  EXPECT_EQ(couple.requester.run(couple.access("write", 0, 1 << 20)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.requester.run(couple.access("read", 0, 1 << 20)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.requester.run(couple.add(0, 1)).status, IBV_WC_SUCCESS);
}

TEST(Idle, AConnectedPair) {
  Couple couple;
  warm_up(couple);
  expect_idle({&couple.requester, &couple.target});
}

TEST(Idle, WaitingForAnEvent) {
  Couple couple({.queues = "events"});
  warm_up(couple);
  couple.target.post("recv q m 0 65536");
  couple.target.say("wait c 1 10000");
  expect_idle({&couple.requester, &couple.target});
  EXPECT_EQ(couple.requester.run("send q m 0 8").status, IBV_WC_SUCCESS);
  EXPECT_TRUE(couple.target.hear().starts_with("polled 1 "));
}

TEST(Idle, ATargetOfWrites) {
  for (const char* kind : {"heap", "shared"}) {
    SCOPED_TRACE(kind);
    Couple couple({.kind = kind});
    warm_up(couple);
    pause_ms(50);
    const Meter meter(couple.target);
    for (const char* length : {"64", "4096", "1048576"})
      EXPECT_TRUE(
          couple.requester.ask("flood q c m " + std::string(length) + " " + couple.there.at(0) + " 300")
              .ends_with(" 0"));
    EXPECT_LT(meter.used().count(), kAllowed.count());
  }
}

TEST(Idle, WhoWaitsForAStoppedPeer) {
  Couple couple({.queues = "events"});
  warm_up(couple);
  couple.target.stop();
  couple.requester.post(couple.add(0, 1));
  couple.requester.say("wait c 1 10000");
  expect_idle({&couple.requester});
  couple.target.go_on();
  EXPECT_TRUE(couple.requester.hear().starts_with("polled 1 "));
}

TEST(Idle, WhoWaitsForAReceive) {
  Couple couple({.queues = "events"});
  warm_up(couple);
  couple.requester.post("send q m 0 8");
  couple.requester.say("wait c 1 10000");
  pause_ms(50);
  const Meter meter(couple.requester);
  pause_ms(1'000);
  // A retry timer of 10 us that runs for ever costs next to nothing: the peer's post_recv tells us, and where
  // it can't, over the network, tries come less and less often.
  EXPECT_LT(meter.used().count(), 20'000 * SLOWDOWN);
  couple.target.post("recv q m 0 8");
  EXPECT_TRUE(couple.requester.hear().starts_with("polled 1 "));
}

TEST(Idle, WhoSurvivesAPeer) {
  Couple couple;
  warm_up(couple);
  couple.target.kill();
  expect_idle({&couple.requester});
  // With the queue pair gone, too.
  couple.requester.tell("drop qp q");
  expect_idle({&couple.requester});
}

TEST(Idle, WhoSurvivesTheAgent) {
  Couple couple;
  warm_up(couple);
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  ::kill(*agent, SIGKILL);
  ASSERT_TRUE(support::eventually([&] {
    const auto next = support::agent_pid();
    return next && *next != *agent;
  }));
  pause_ms(300);
  expect_idle({&couple.requester, &couple.target});
}

}  // namespace
}  // namespace verbena::local_path
