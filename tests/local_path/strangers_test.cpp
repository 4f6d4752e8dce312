// Who shares no memory with whom (DESIGN 2.3, Trust) and so uses the network; and children of fork(), which
// share nothing either.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

namespace fs = std::filesystem;

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "only root can be several users or make pid namespaces; run the suite as root for this";
  }

  // Connected to itself.
  void expect_works_alone(Worker& worker) {
    const Region region = worker.region("m", 4096);
    const std::string first = worker.pair("own1");
    const std::string second = worker.pair("own2");
    connect(worker, "own1", first, worker, "own2", second, kPatient);
    EXPECT_EQ(worker.run("write own1 m 0 100 " + region.at(2048)).status, IBV_WC_SUCCESS);
  }

  Sayings sayings_;
};

// Copies where every user may run them: a checkout may lie in a private directory.
class Users : public Strangers {
 protected:
  void SetUp() override {
    Strangers::SetUp();
    if (IsSkipped()) return;
    char name[] = "/tmp/verbena-strangers-XXXXXX";
    home_ = ::mkdtemp(name);
    ::chmod(home_.c_str(), 0755);
    for (const auto& file : fs::directory_iterator(VERBENA_LIBRARIES))
      fs::copy(file, home_ + "/" + file.path().filename().string(), fs::copy_options::copy_symlinks);
    fs::copy(RC_WORKER, home_ + "/worker");
  }
  void TearDown() override {
    if (!home_.empty()) fs::remove_all(home_);
  }
  [[nodiscard]] std::vector<std::string> command() const { return {home_ + "/worker"}; }
  [[nodiscard]] support::Process::Options as(uid_t uid) const {
    return {.uid = uid,
            .environment = {"VERBENA_EXPLAIN=1", "LD_LIBRARY_PATH=" + home_,
                            "VERBENA_AGENT=" + home_ + "/verbena-agent"}};
  }

  std::string home_;
};

TEST_F(Users, ShareNothing) {
  Worker anna(as(40001), command());
  Worker bert(as(40002), command());
  // The network would do between them, but its port is one user's.
  const std::string anna_address = anna.pair("q");
  EXPECT_EQ(anna.connect("q", bert.pair("q"), kPatient), "done");
  EXPECT_EQ(bert.connect("q", anna_address, kPatient), "refused " + std::to_string(EADDRINUSE) + " RTR");
  const std::string said = sayings_.take();
  EXPECT_NE(said.find("belongs to another user"), std::string::npos) << said;
  for (Worker* worker : {&anna, &bert}) expect_works_alone(*worker);
}

// Nobody may trace it or look at its descriptors, but it gave its memory away itself.
TEST_F(Users, ATargetThatHides) {
  Worker requester(as(40001), command());
  Worker target(as(40001), command());
  target.queue("c", 64, "events");
  (void)requester.region("m", 1 << 20);
  const Region there = target.region("m", 1 << 20, "shared");
  target.tell("hide");
  connect(requester, "q", requester.pair("q"), target, "q", target.pair("q"), kPatient);
  EXPECT_EQ(requester.run("write q m 0 8 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(requester.run("write q m 0 1048576 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(requester.run("read q m 0 1048576 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(requester.run("add q m 0 " + there.at(0) + " 1").status, IBV_WC_SUCCESS);
  // Its channel can't be rung from outside, so its helper thread does it.
  target.post("recv q m 0 65536");
  target.say("wait c 1 5000");
  pause_ms(50);
  EXPECT_EQ(requester.run("send q m 0 100").status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target.hear().starts_with("polled 1 "));
}

TEST_F(Strangers, AnotherPidNamespace) {
  Worker outside({.environment = {"VERBENA_EXPLAIN=1"}});
  Worker inside({.environment = {"VERBENA_EXPLAIN=1"}}, {"unshare", "-p", "-f", "--kill-child", RC_WORKER});
  const Region there = inside.region("m", 1 << 20);
  (void)outside.region("m", 1 << 20);
  connect(outside, "q", outside.pair("q"), inside, "q", inside.pair("q"), kPatient);
  // Over the network of their host, as between any two strangers.
  EXPECT_EQ(outside.run("write q m 0 1048576 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(outside.run("read q m 0 1048576 " + there.at(0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(outside.run("add q m 0 " + there.at(0) + " 1").status, IBV_WC_SUCCESS);
  for (Worker* worker : {&outside, &inside}) expect_works_alone(*worker);
}

TEST(Fork, AChildGetsErrorsAndDoesNoHarm) {
  Couple couple({.queues = "events"});
  const auto use = [&] {
    EXPECT_EQ(couple.requester.run(couple.access("write", 0, 1 << 20)).status, IBV_WC_SUCCESS);
    EXPECT_EQ(couple.requester.run(couple.add(0, 1)).status, IBV_WC_SUCCESS);
  };
  use();
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const std::string line = couple.requester.ask("fork c q m " + couple.target_address);
    ASSERT_TRUE(line.starts_with("forked ")) << line;
    ASSERT_TRUE(line.ends_with(" own=0")) << line;
    std::istringstream words(line.substr(line.find(' '), line.rfind(' ') - line.find(' ')));
    int calls = 0;
    for (std::string word; words >> word; ++calls) {
      const std::string answer = word.substr(word.find('=') + 1);
      // An errno, or the -1 that is all ibv_poll_cq and ibv_get_cq_event can say.
      EXPECT_TRUE(answer == std::to_string(EIO) || answer == "-1") << word;
    }
    EXPECT_EQ(calls, 16);
    use();  // the parent's are as they were
  }
}

// A parent that dies while its child lives on is dead to its peers.
TEST(Fork, AChildDoesNotKeepItsParentAlive) {
  Couple couple({.rules = {.timeout = 0, .retries = 7}});
  EXPECT_EQ(couple.requester.run(couple.access("write", 0, 8)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.target.ask("linger 3"), "done");
  couple.target.kill();
  const auto one = couple.requester.run(couple.access("write", 0, 8), 2'000);
  EXPECT_EQ(one.status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace verbena::local_path
