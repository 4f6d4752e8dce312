// Peers get to each other's segments and memory through the agent, whoever is killed meanwhile, and strangers
// don't.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/time.hpp"
#include "fleet.hpp"

namespace verbena::crash {
namespace {

using support::eventually;
using IntroductionTest = FreshHost;

class PidNamespaces : public FreshHost {
 protected:
  void SetUp() override {
    FreshHost::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start programs in pid namespaces of their own";
  }
};

std::string ask(Member& member, const std::string& line) {
  member.process.say(line);
  return member.process.hear().value_or("nothing");
}
std::string introduce(Member& member, const Member& peer) {
  return ask(member, "introduce " + std::to_string(peer.slot));
}
// "introduced PID ...", with all that an introduction brings in order.
bool is_good(const std::string& line, pid_t pid) {
  return line.starts_with("introduced " + std::to_string(pid) + " ") && line.ends_with(" trwm");
}

// The child that `unshare --fork` or `nsenter` started, in our numbering.
pid_t child_of(pid_t parent) {
  const std::string path =
      "/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children";
  pid_t child = 0;
  eventually([&] {
    std::ifstream children(path);
    return static_cast<bool>(children >> child);
  });
  return child;
}

Member enlist_by(const std::vector<std::string>& command, const std::vector<std::string>& environment = {}) {
  Member member{support::Process::start(command, {.environment = environment})};
  const auto line = member.process.hear();
  EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
  if (line && line->starts_with("slot ")) member.slot = static_cast<unsigned>(std::stoul(line->substr(5)));
  return member;
}

TEST_F(IntroductionTest, EachOtherAndOneself) {
  Member anna = enlist();
  Member bert = enlist();
  EXPECT_TRUE(is_good(introduce(anna, bert), bert.process.pid()));
  EXPECT_TRUE(is_good(introduce(bert, anna), anna.process.pid()));
  EXPECT_TRUE(is_good(introduce(bert, bert), bert.process.pid()));
}

TEST_F(IntroductionTest, MemoryIsThePeers) {
  Member anna = enlist();
  Member bert = enlist();
  ASSERT_TRUE(is_good(introduce(anna, bert), bert.process.pid()));
  const std::string at = ask(bert, "put Verbena");
  ASSERT_TRUE(at.starts_with("at ")) << at;
  const std::string peek = "peek " + std::to_string(bert.slot) + at.substr(2) + " 7";
  EXPECT_EQ(ask(anna, peek), "peeked Verbena");
  bert.process.signal(SIGSTOP);  // one-sided means that the other side needn't do anything
  EXPECT_EQ(ask(anna, peek), "peeked Verbena");
  bert.process.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return ask(anna, peek) == "peeked"; }));
}

TEST_F(IntroductionTest, WakesThePeersHelperThread) {
  Member anna = enlist();
  Member bert = enlist();
  const auto slot = std::to_string(bert.slot);
  ASSERT_TRUE(is_good(introduce(anna, bert), bert.process.pid()));
  ASSERT_EQ(ask(bert, "work"), "working");
  EXPECT_EQ(ask(bert, "wakes 1"), "wakes 0");
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(ask(anna, "wake " + slot), "woke " + slot);
    EXPECT_EQ(ask(bert, "wakes " + std::to_string(i)), "wakes " + std::to_string(i));
  }
  // Of a process that sleeps for long no waker ever waits.
  bert.process.signal(SIGSTOP);
  for (int i = 0; i < 2'000; ++i) anna.process.say("wake " + slot);
  for (int i = 0; i < 2'000; ++i) ASSERT_EQ(anna.process.hear(), "woke " + slot);
  bert.process.signal(SIGCONT);
  ask(bert, "work");
  EXPECT_EQ(ask(bert, "wakes 1"), "wakes 0") << "all those wakes are drained";
}

TEST_F(IntroductionTest, HangsUpOnDeathExecAndDetach) {
  Member anna = enlist();
  std::optional<Member> bert = enlist();
  const auto hangup = [&](unsigned slot) { return ask(anna, "hangup " + std::to_string(slot)); };
  ASSERT_TRUE(is_good(introduce(anna, *bert), bert->process.pid()));
  bert->process.signal(SIGKILL);
  EXPECT_EQ(hangup(bert->slot), "hangup " + std::to_string(bert->slot));
  EXPECT_EQ(ask(anna, "wake " + std::to_string(bert->slot)), "gone " + std::to_string(bert->slot));

  bert.emplace(enlist());
  ASSERT_TRUE(is_good(introduce(anna, *bert), bert->process.pid()));
  const unsigned before = bert->slot;
  const std::string after = ask(*bert, "exec");
  ASSERT_TRUE(after.starts_with("slot ")) << after;
  EXPECT_EQ(hangup(before), "hangup " + std::to_string(before));
  bert->slot = static_cast<unsigned>(std::stoul(after.substr(5)));
  ASSERT_TRUE(is_good(introduce(anna, *bert), bert->process.pid()));

  EXPECT_EQ(ask(*bert, "close"), "closed");
  EXPECT_EQ(hangup(bert->slot), "hangup " + std::to_string(bert->slot));
  EXPECT_TRUE(eventually([] { return slots_taken() == 1u; }));
  EXPECT_EQ(introduce(anna, *bert), "refused 3 no process has slot " + std::to_string(bert->slot));
}

TEST_F(IntroductionTest, NobodyAtThatSlot) {
  Member anna = enlist();
  for (const unsigned slot : {0u, 251u, 255u, anna.slot % 250 + 1})
    EXPECT_EQ(ask(anna, "introduce " + std::to_string(slot)),
              "refused 3 no process has slot " + std::to_string(slot));
  ask(anna, "close");
  ASSERT_TRUE(eventually([] { return slots_taken() == 0u || !support::agent_pid(); }));
  EXPECT_TRUE(introduce(anna, anna).starts_with("refused 107 this process has no slot"));
}

TEST_F(IntroductionTest, LeavesNothingWithTheAgent) {
  Member anna = enlist();
  Member bert = enlist();
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  const int before = support::descriptor_count(*agent);
  const std::string fds = ask(anna, "fds");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(is_good(introduce(anna, bert), bert.process.pid())) << i;
  EXPECT_TRUE(eventually([&] { return support::descriptor_count(*agent) <= before; }));
  EXPECT_EQ(ask(anna, "fds"), "fds " + std::to_string(std::stoi(fds.substr(4)) + 4));
}

TEST_F(IntroductionTest, AgentKilledBeforeAndMeanwhile) {
  Member anna = enlist();
  Member bert = enlist();
  ASSERT_TRUE(is_good(introduce(anna, bert), bert.process.pid()));
  const auto slot = std::to_string(bert.slot);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const auto agent = support::agent_pid();
    ASSERT_TRUE(agent);
    anna.process.say("introduce " + slot);
    if (round % 3 != 0) ::poll(nullptr, 0, round % 3);
    ::kill(*agent, SIGKILL);
    const auto line = anna.process.hear(support::Wait(20'000));
    ASSERT_TRUE(line && is_good(*line, bert.process.pid())) << line.value_or("nothing");
    // What was handed over before works without any agent.
    EXPECT_EQ(ask(anna, "wake " + slot), "woke " + slot);
    ASSERT_TRUE(next_agent(*agent));
  }
}

TEST_F(IntroductionTest, OrphanThatDoesNotComeBack) {
  Member anna = enlist();
  Member bert = enlist();
  const auto agent = support::agent_pid();
  bert.process.signal(SIGSTOP);
  kill_agent();
  ASSERT_TRUE(next_agent(*agent));
  const auto begin = base::now();
  const std::string refused = introduce(anna, bert);
  const auto took = base::now() - begin;
  EXPECT_TRUE(refused.starts_with("refused 11 the process in slot " + std::to_string(bert.slot))) << refused;
  EXPECT_NE(refused.find("is it stopped?"), std::string::npos) << refused;
  EXPECT_GE(took, base::milliseconds(1'900));
  EXPECT_LT(took, base::seconds(8));
  // Asked again it is told as soon as the other comes back.
  anna.process.say("introduce " + std::to_string(bert.slot));
  ::poll(nullptr, 0, 200);
  bert.process.signal(SIGCONT);
  EXPECT_TRUE(is_good(anna.process.hear().value_or("nothing"), bert.process.pid()));
}

TEST_F(PidNamespaces, AreStrangersToEachOther) {
  Member outside = enlist();
  Member first = enlist_by({"unshare", "--pid", "--fork", "--kill-child", TEST_CLIENT});
  const std::string refused = introduce(outside, first);
  EXPECT_TRUE(refused.starts_with("refused 1 the process in slot " + std::to_string(first.slot))) << refused;
  EXPECT_NE(refused.find("another pid namespace"), std::string::npos) << refused;
  EXPECT_NE(refused.find("wire path"), std::string::npos) << refused;
  EXPECT_TRUE(introduce(first, outside).starts_with("refused 1 "));

  // Among themselves they are neighbours, and know each other by their own numbers.
  const auto inside = std::to_string(child_of(first.process.pid()));
  Member second = enlist_by({"nsenter", "--target", inside, "--pid", TEST_CLIENT});
  EXPECT_TRUE(is_good(introduce(second, first), 1));
  const std::string back = introduce(first, second);
  ASSERT_TRUE(back.starts_with("introduced ") && back.ends_with(" trwm")) << back;
  EXPECT_LT(std::stoi(back.substr(11)), 10) << back;
}

TEST_F(PidNamespaces, ContainersTrustEachOtherIfBothAreToldTo) {
  const std::vector<std::string> trusting = {"VERBENA_TRUST_CONTAINERS=1"};
  Member outside = enlist_by({TEST_CLIENT}, trusting);
  Member wary = enlist();
  Member inside = enlist_by({"unshare", "--pid", "--fork", "--kill-child", TEST_CLIENT}, trusting);
  EXPECT_TRUE(is_good(introduce(outside, inside), 0)) << "its pid means nothing here";
  EXPECT_TRUE(is_good(introduce(inside, outside), 0));
  EXPECT_TRUE(introduce(wary, inside).starts_with("refused 1 "));
  EXPECT_TRUE(introduce(inside, wary).starts_with("refused 1 "));
}

TEST_F(PidNamespaces, AgentThatDoesNotSeeAProcessIntroducesItToNobody) {
  // The agent is started by a process in a pid namespace below ours: that one sees its own, but not us.
  Member inside = enlist_by({"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", TEST_CLIENT});
  Member outside = enlist();
  const std::string refused = introduce(outside, inside);
  EXPECT_TRUE(refused.starts_with("refused 1 this process is in a pid namespace that the host agent"))
      << refused;
  const std::string back = introduce(inside, outside);
  EXPECT_TRUE(back.starts_with("refused 1 the process in slot")) << back;
  EXPECT_NE(back.find("doesn't see"), std::string::npos) << back;
  // The agent must leave before its namespace ends and it is killed: it would leave its directory behind.
  EXPECT_EQ(ask(inside, "close"), "closed");
  EXPECT_EQ(ask(outside, "close"), "closed");
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace verbena::crash
