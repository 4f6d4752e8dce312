// Ends, and the agent, killed at random instants of a connection's life: whoever is left hears of it soon,
// and the agent keeps nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <random>

#include "peers.hpp"

namespace verbena::cm_test {
namespace {

using std::chrono::steady_clock;
using support::eventually;
using support::Wait;

constexpr Wait kBound{5'000};  // a busy machine; usually it takes a millisecond

class Kill : public crash::FreshHost {
 protected:
  void SetUp() override {
    FreshHost::SetUp();
    first_seed_ = from_environment("CM_SEED", 1);
  }
  // The agent leaves when it has no id, no slot and no connection under way any more.
  void TearDown() override { EXPECT_TRUE(crash::nothing_left()); }

  // Where the dead one was.
  void note_state(support::Process& dead) {
    std::string last = "nothing said";
    while (const auto line = dead.hear(Wait(1'000))) last = *line;
    ++states_[last];
  }
  static void pause(std::mt19937_64& random, unsigned most_ms) {
    ::usleep(static_cast<useconds_t>(random() % (most_ms * 1'000)));
  }
  void show_states() const {
    for (const auto& [state, count] : states_) std::cout << count << " times: " << state << "\n";
  }

  uint64_t first_seed_ = 1;
  std::map<std::string, int> states_;
};

// So many kills of each kind, or as many as a busy machine does in eight seconds; CM_KILLS takes its time.
class Kills {
 public:
  explicit Kills(uint64_t usual) : count_(from_environment("CM_KILLS", usual)) {}
  ~Kills() { std::cout << done_ << " kills\n"; }
  [[nodiscard]] bool another() {
    const bool time_is_up =
        std::getenv("CM_KILLS") == nullptr && steady_clock::now() > begin_ + std::chrono::seconds(8);
    if (done_ == count_ || time_is_up || testing::Test::HasFailure()) return false;
    ++done_;
    return true;
  }

 private:
  steady_clock::time_point begin_ = steady_clock::now();
  uint64_t count_;
  uint64_t done_ = 0;
};

TEST_F(Kill, AClientAtRandomInstants) {
  Server server;
  Kills kills(100);
  for (uint64_t seed = first_seed_; kills.another(); ++seed) {
    SCOPED_TRACE("CM_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    Client victim(seed);
    victim.process.say("live-on " + server.port);
    pause(random, 25);
    victim.process.signal(SIGKILL);
    EXPECT_TRUE(eventually([&] { return server.live() == 0u; }, kBound)) << "the server wasn't told";
    note_state(victim.process);
  }
  show_states();
}

TEST_F(Kill, AServerAtRandomInstants) {
  Client client(12'345);
  Kills kills(100);
  for (uint64_t seed = first_seed_; kills.another(); ++seed) {
    SCOPED_TRACE("CM_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    Server victim(seed);
    client.process.say("live-on " + victim.port);
    pause(random, 25);
    victim.process.signal(SIGKILL);
    const auto begin = steady_clock::now();
    const auto end = client.hear();
    EXPECT_LT(steady_clock::now() - begin, kBound);
    EXPECT_TRUE(end.ends_with("RDMA_CM_EVENT_DISCONNECTED") || end.ends_with("RDMA_CM_EVENT_REJECTED") ||
                end.ends_with("RDMA_CM_EVENT_UNREACHABLE"))
        << end;
    note_state(victim.process);
  }
  show_states();
}

TEST_F(Kill, TheAgentWhileConnectionsAreMade) {
  Server server;
  Client client(777);
  Kills kills(30);
  for (uint64_t seed = first_seed_; kills.another(); ++seed) {
    SCOPED_TRACE("CM_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    client.process.say("lives " + server.port + " 1000000 100");
    pause(random, 25);
    if (const auto agent = support::agent_pid()) ::kill(*agent, SIGKILL);
    const auto end = client.hear();
    EXPECT_TRUE(end.starts_with("lived ")) << end;
    ++states_[end.substr(end.find(' ', 6))];  // without how many went well
    EXPECT_TRUE(eventually([&] { return server.live() == 0u; }, Wait(10'000)))
        << "the server wasn't told: " << end;
  }
  show_states();
  // As good as new.
  Client another;
  EXPECT_EQ(another.tell("lives " + server.port + " 3 60000"), "lived 3 ");
}

}  // namespace
}  // namespace verbena::cm_test
