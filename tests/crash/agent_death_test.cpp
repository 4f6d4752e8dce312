// The agent may be killed at any instruction: the processes that outlive it keep their slots and their
// packets.
#include <gtest/gtest.h>
#include <signal.h>

#include "fleet.hpp"

namespace verbena::crash {
namespace {

using support::eventually;
using AgentDeath = FreshHost;

TEST_F(AgentDeath, HundredKillsWithClientsOneOfThemStopped) {
  auto fleet = enlist_all(8);
  Member sleeper = enlist();
  sleeper.process.signal(SIGSTOP);
  std::optional<pid_t> agent = support::agent_pid();
  ASSERT_TRUE(agent);
  int most_descriptors = 0;

  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    kill_agent();
    agent = next_agent(*agent);
    ASSERT_TRUE(agent) << "no survivor started a new agent";
    for (auto& member : fleet) ASSERT_TRUE(reached(member, std::to_string(round))) << "slot " << member.slot;
    send_to_slot(sleeper.slot, std::to_string(round), round % 2 == 1);
    const auto before = counter("packets_unclaimed");
    send_to_slot(0, "for the agent");
    ASSERT_TRUE(eventually([&] { return counter("packets_unclaimed") > before; })) << "slot 0";
    // A newcomer gets a slot of its own, not the sleeper's.
    if (round % 10 == 0) {
      Member newcomer = enlist();
      EXPECT_NE(newcomer.slot, sleeper.slot);
      EXPECT_TRUE(reached(newcomer, "new"));
    }
    most_descriptors = std::max(most_descriptors, support::descriptor_count(*agent));
  }
  // 251 sockets, six descriptors a process, and the agent's own dozen: nothing piles up.
  EXPECT_LT(most_descriptors, 251 + 6 * 12 + 40);

  sleeper.process.signal(SIGCONT);
  for (int round = 0; round < 100; ++round) {
    sleeper.process.say("expect " + std::to_string(round));
    EXPECT_EQ(sleeper.process.hear(), "got " + std::to_string(round));
  }
  for (auto& member : fleet) {
    member.process.say("slot");
    EXPECT_EQ(member.process.hear(), "slot " + std::to_string(member.slot));
    member.process.say("fds");
    const auto fds = member.process.hear();
    ASSERT_TRUE(fds && fds->starts_with("fds "));
    EXPECT_LT(std::stoi(fds->substr(4)), 25) << "a client's descriptors pile up";
  }
  fleet.clear();
  sleeper.process.signal(SIGKILL);
  EXPECT_TRUE(sleeper.process.wait_for_exit());
  EXPECT_TRUE(nothing_left());
}

TEST_F(AgentDeath, TheOnlySurvivorIsStopped) {
  Member sleeper = enlist();
  sleeper.process.signal(SIGSTOP);
  kill_agent();
  // Nobody who runs can hand the port over: the new agent fetches it out of the stopped process.
  Member newcomer = enlist();
  EXPECT_NE(newcomer.slot, sleeper.slot);
  EXPECT_TRUE(reached(newcomer, "new"));
  send_to_slot(sleeper.slot, "while stopped");
  sleeper.process.signal(SIGCONT);
  sleeper.process.say("expect while stopped");
  EXPECT_EQ(sleeper.process.hear(), "got while stopped");
}

TEST_F(AgentDeath, ClientAndAgentDieTogether) {
  Member survivor = enlist();
  Member victim = enlist();
  const auto agent = support::agent_pid();
  victim.process.signal(SIGKILL);
  kill_agent();
  ASSERT_TRUE(next_agent(*agent));
  EXPECT_TRUE(reached(survivor, "still"));
  // The dead one's slot goes through quarantine (its time-wait is unknown) and comes back.
  EXPECT_TRUE(eventually([&] { return slots_taken() == 1u; }));
}

TEST_F(AgentDeath, KilledAgainAndAgainWhileClientsAttach) {
  Member anchor = enlist();
  std::vector<Member> late;
  for (int round = 0; round < 15; ++round) {
    auto starting = support::Process::start({TEST_CLIENT});
    const auto agent = support::agent_pid();
    if (agent) ::kill(*agent, SIGKILL);
    const auto line = starting.hear();
    ASSERT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
    late.push_back({std::move(starting), static_cast<unsigned>(std::stoul(line->substr(5)))});
  }
  for (auto& member : late) EXPECT_TRUE(reached(member, "x")) << member.slot;
  EXPECT_TRUE(reached(anchor, "x"));
  for (auto& member : late)
    for (auto& other : late) EXPECT_TRUE(&member == &other || member.slot != other.slot);
  late.clear();
  EXPECT_TRUE(eventually([&] { return slots_taken() == 1u; })) << slots_taken().value_or(0);
}

TEST_F(AgentDeath, NobodyLeftMeansAFreshStart) {
  {
    Member only = enlist();
    kill_agent();
    only.process.signal(SIGKILL);
  }
  EXPECT_FALSE(support::agent_pid() && slots_taken() > 1u);
  Member next = enlist();
  EXPECT_TRUE(reached(next, "fresh"));
}

}  // namespace
}  // namespace verbena::crash
