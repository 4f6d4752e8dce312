// Several users and several network namespaces on one machine.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/numbers.hpp"
#include "client/agent_link.hpp"
#include "fleet.hpp"
#include "ipc/channel.hpp"
#include "ipc/rendezvous.hpp"

namespace verbena::crash {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kAnna = 40001;
constexpr uid_t kBert = 40002;

// Copies of the programs where every user may run them: a checkout may lie in a private directory.
class Users : public FreshHost {
 protected:
  void SetUp() override {
    FreshHost::SetUp();
    if (::geteuid() != 0)
      GTEST_SKIP() << "only root can be several users; run the suite as root for this one";
    char name[] = "/tmp/verbena-users-XXXXXX";
    home_ = ::mkdtemp(name);
    ::chmod(home_.c_str(), 0755);
    fs::create_directories(home_ + "/bin");
    fs::create_directories(home_ + "/lib/verbena");
    fs::copy(TEST_CLIENT, client());
    fs::copy(VERBENA_COMMAND, home_ + "/bin/verbena");
    fs::copy(VERBENA_AGENT_PROGRAM, home_ + "/lib/verbena/verbena-agent");
  }
  void TearDown() override {
    if (!home_.empty()) fs::remove_all(home_);
  }

  [[nodiscard]] std::string client() const { return home_ + "/bin/client"; }
  [[nodiscard]] Member enlist_as(uid_t uid) const {
    Member member{support::Process::start({client()}, {.uid = uid, .environment = {agent_variable()}})};
    const auto line = member.process.hear();
    EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
    if (line && line->starts_with("slot ")) member.slot = static_cast<unsigned>(std::stoul(line->substr(5)));
    return member;
  }
  [[nodiscard]] std::string agent_variable() const {
    return "VERBENA_AGENT=" + home_ + "/lib/verbena/verbena-agent";
  }
  [[nodiscard]] nlohmann::json status_of(uid_t uid) const {
    const auto output = support::shell("setpriv --reuid " + std::to_string(uid) + " --clear-groups " + home_ +
                                       "/bin/verbena agent status --json");
    return nlohmann::json::parse(output.text, nullptr, false);
  }
  void kill_agent_of(uid_t uid) const {
    const pid_t pid = status_of(uid)["pid"].get<pid_t>();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_TRUE(support::eventually([&] {
      const auto status = status_of(uid);
      return status.is_object() && status["pid"] != pid;
    }));
  }

  std::string home_;
};

TEST_F(Users, SecondUserLeasesARangeOfItsOwn) {
  Member anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  const auto status = status_of(kBert);
  EXPECT_FALSE(status["has_port"]);
  const auto advice = status["advice"].get<std::string>();
  EXPECT_NE(advice.find("belongs to uid 40001"), std::string::npos) << advice;
  EXPECT_NE(advice.find("verbena agent --system"), std::string::npos) << advice;
  EXPECT_TRUE(status_of(kAnna)["has_port"]);

  unsigned leased = 0;
  bool berts_is_leased = false;
  const auto annas = status_of(kAnna);
  for (const auto& slot : annas["slots"]) {
    if (slot["state"] != "leased") continue;
    ++leased;
    EXPECT_EQ(slot["uid"], kBert);
    berts_is_leased |= slot["slot"] == bert.slot;
  }
  EXPECT_EQ(leased, 32u);
  EXPECT_TRUE(berts_is_leased) << bert.slot;

  // 31 more fit, then there is a sentence; Anna's never get one of those.
  std::vector<Member> berts;
  for (int i = 0; i < 31; ++i) berts.push_back(enlist_as(kBert));
  auto one_more = support::Process::start({client()}, {.uid = kBert, .environment = {agent_variable()}});
  const auto line = one_more.hear();
  EXPECT_TRUE(line && line->starts_with("refused 12 no free slot: of the 32")) << line.value_or("nothing");
  EXPECT_TRUE(reached(anna, "annas"));
}

TEST_F(Users, LeaseOutlivesEitherAgent) {
  Member anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  kill_agent_of(kAnna);
  EXPECT_TRUE(reached(anna, "annas"));
  const auto leased_to_bert = [&] {
    const auto status = status_of(kAnna);
    if (!status.is_object()) return false;
    for (const auto& slot : status["slots"])
      if (slot["slot"] == bert.slot) return slot["state"] == "leased";
    return false;
  };
  EXPECT_TRUE(leased_to_bert());
  kill_agent_of(kBert);
  EXPECT_TRUE(leased_to_bert());
  Member second = enlist_as(kBert);
  EXPECT_NE(second.slot, bert.slot);
  bert.process.say("slot");
  EXPECT_EQ(bert.process.hear(), "slot " + std::to_string(bert.slot));
}

TEST_F(Users, PortGoesToTheOneWhoIsLeft) {
  std::optional<Member> anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  EXPECT_FALSE(status_of(kBert)["has_port"]);
  const pid_t annas_agent = status_of(kAnna)["pid"].get<pid_t>();
  anna.reset();
  // An agent with a lease stays; killed, it leaves the port free.
  ::kill(annas_agent, SIGKILL);
  EXPECT_TRUE(support::eventually([&] { return status_of(kBert)["has_port"] == true; }));
  EXPECT_TRUE(reached(bert, "now on the network"));
}

TEST_F(Users, NobodyCanLeaseAllSlots) {
  Member anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  // Root, as any other user, gets one range; with more connections it gets no more.
  std::vector<base::UniqueFd> greedy;
  unsigned granted = 0;
  for (int i = 0; i < 12; ++i) {
    auto socket = ipc::connect_to(ipc::port_owner_name());
    ASSERT_TRUE(socket);
    ASSERT_TRUE(ipc::send(socket->get(), ipc::Lease{}));
    auto answer = ipc::receive_until(socket->get(), base::now() + base::seconds(5));
    ASSERT_TRUE(answer);
    granted += answer->kind == ipc::Kind::kLeased ? 1 : 0;
    greedy.push_back(std::move(*socket));
  }
  EXPECT_EQ(granted, 1u);
  Member another = enlist_as(kAnna);
  EXPECT_TRUE(reached(another, "room for the owner"));
}

TEST_F(Users, WrongUserIsRefused) {
  Member anna = enlist_as(kAnna);
  auto socket = ipc::connect_to(ipc::user_agent_name(kAnna));
  ASSERT_TRUE(socket);
  (void)ipc::send(socket->get(), ipc::Hello{});
  auto answer = ipc::receive_until(socket->get(), base::now() + base::seconds(5));
  ASSERT_TRUE(answer);
  const auto refused = ipc::expect<ipc::Welcome>(*answer);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EACCES);
  EXPECT_EQ(refused.error().sentence, "this is the host agent of uid 40001, you are uid 0");
  EXPECT_EQ(status_of(kAnna)["counters"]["refused_uid"], 1);
}

TEST_F(Users, SquatterOnTheNameIsNotBelieved) {
  const auto squatted = ipc::listen_at(ipc::user_agent_name(kAnna));  // by root, which isn't Anna
  ASSERT_TRUE(squatted);
  auto anna = support::Process::start({client()}, {.uid = kAnna, .environment = {agent_variable()}});
  const auto line = anna.hear();
  ASSERT_TRUE(line);
  EXPECT_NE(line->find("is held by a process of uid 0"), std::string::npos) << *line;
}

TEST_F(Users, SystemAgentServesBothAndSurvives) {
  auto system = support::Process::start({home_ + "/lib/verbena/verbena-agent", "--system"});
  ASSERT_TRUE(support::eventually([] { return ipc::connect_to(ipc::system_agent_name()).has_value(); }));
  Member anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  EXPECT_TRUE(reached(anna, "annas"));
  EXPECT_TRUE(reached(bert, "berts"));
  for (int round = 0; round < 5; ++round) {
    const pid_t agent = status_of(kAnna)["pid"].get<pid_t>();
    ASSERT_NE(agent, system.pid()) << "the supervisor is not the agent";
    ::kill(agent, SIGKILL);
    ASSERT_TRUE(support::eventually([&] {
      const auto status = status_of(kBert);
      return status.is_object() && status["pid"] != agent && status["slots"].size() == 2;
    }));
    EXPECT_TRUE(reached(anna, "annas"));
    EXPECT_TRUE(reached(bert, "berts"));
  }
  system.signal(SIGTERM);
  EXPECT_TRUE(system.wait_for_exit());
}

TEST_F(Users, AreStrangersToEachOther) {
  const auto introduce = [](Member& member, const Member& peer) {
    member.process.say("introduce " + std::to_string(peer.slot));
    return member.process.hear().value_or("nothing");
  };
  const auto refused = [](const std::string& line) {
    return line.starts_with("refused 1 slot ") && line.find("users share no memory") != std::string::npos &&
           line.find("wire path") != std::string::npos;
  };
  {
    // Each with an agent of its own: the slots of the other belong to the other agent.
    Member anna = enlist_as(kAnna);
    Member bert = enlist_as(kBert);
    const std::string line = introduce(anna, bert);
    EXPECT_TRUE(refused(line)) << line;
    const std::string back = introduce(bert, anna);
    EXPECT_TRUE(refused(back)) << back;
    Member annas = enlist_as(kAnna);
    EXPECT_TRUE(introduce(anna, annas).ends_with(" trwm"));
  }
  ASSERT_TRUE(support::eventually(
      [&] { return !status_of(kAnna).is_object() && !status_of(kBert).is_object(); }, support::Wait(30'000)));
  auto system = support::Process::start({home_ + "/lib/verbena/verbena-agent", "--system"});
  ASSERT_TRUE(support::eventually([] { return ipc::connect_to(ipc::system_agent_name()).has_value(); }));
  Member anna = enlist_as(kAnna);
  Member bert = enlist_as(kBert);
  Member berts = enlist_as(kBert);
  const std::string line = introduce(anna, bert);
  EXPECT_TRUE(refused(line)) << line;
  EXPECT_NE(line.find("is a process of uid 40002, you are uid 40001"), std::string::npos) << line;
  EXPECT_TRUE(refused(introduce(bert, anna)));
  EXPECT_TRUE(introduce(bert, berts).ends_with(" trwm"));
  // Not even root, which isn't Bert.
  Member root = enlist();
  EXPECT_TRUE(refused(introduce(root, bert)));
  system.signal(SIGTERM);
  EXPECT_TRUE(system.wait_for_exit());
}

TEST_F(Users, NetworkNamespacesAreHostsOfTheirOwn) {
  Member here = enlist_as(kAnna);
  const std::string command = home_ + "/bin/verbena devices --json";
  const auto there = support::shell("unshare -n sh -c 'ip link set lo up; " + command + "'");
  const auto mine = support::shell(command);
  const auto guid = [](const support::Output& output) {
    return nlohmann::json::parse(output.text)[0]["node_guid"].get<std::string>();
  };
  EXPECT_NE(guid(there), guid(mine));
  EXPECT_EQ(guid(support::shell(command)), guid(mine));
  // All slots are free there, whoever has them here.
  auto other = support::Process::start({"unshare", "-n", "sh", "-c", "ip link set lo up; exec " + client()},
                                       {.environment = {agent_variable()}});
  const auto line = other.hear();
  EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
  EXPECT_TRUE(reached(here, "mine"));
}

}  // namespace
}  // namespace verbena::crash
