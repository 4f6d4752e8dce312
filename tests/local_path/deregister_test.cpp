// ibv_dereg_mr against peers that are accessing the memory: when it returns, the memory is the program's
// alone.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <sstream>

#include "local_path/churn.hpp"
#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

ChurnReport parse(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  ChurnReport report;
  words >> what >> report.rounds >> report.good >> report.refused >> report.other >> report.status >>
      report.violations >> report.longest_us;
  EXPECT_EQ(what, "churned") << line;
  return report;
}

class Deregister : public testing::Test {
 protected:
  void SetUp() override {
    const int fd = ::mkstemp(path_);
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  void TearDown() override { ::unlink(path_); }

  [[nodiscard]] std::string churn(const std::string& role, int64_t amount, uint64_t seed) const {
    return "churn " + role + " " + path_ + " " + std::to_string(amount) + " " + std::to_string(seed);
  }

  char path_[32] = "/tmp/verbena-board-XXXXXX";
};

TEST_F(Deregister, AgainstWritesAndReads) {
  Worker target;
  Worker first;
  Worker second;
  target.say(churn("target", 3'000 * kLonger, 1));
  first.say(churn("peer", 0, 2));
  second.say(churn("peer", 1, 3));
  const ChurnReport at_target = parse(target.hear(support::Wait(30'000 * SLOWDOWN)));
  EXPECT_EQ(at_target.violations, 0u)
      << "bytes changed after ibv_dereg_mr in " << at_target.rounds << " rounds";
  EXPECT_GT(at_target.rounds, 20u / SLOWDOWN);
  // It waits for one copy of 256 KiB at most, and for a core.
  EXPECT_LT(at_target.longest_us, 500'000 * SLOWDOWN);
  for (Worker* peer : {&first, &second}) {
    const ChurnReport report = parse(peer->hear());
    EXPECT_EQ(report.other, 0u) << "status " << report.status << ", of " << report.rounds;
    EXPECT_GT(report.good, 20u / SLOWDOWN);
    EXPECT_GT(report.refused, 20u / SLOWDOWN);
  }
}

TEST_F(Deregister, AgainstMessages) {
  Worker target;
  Worker sender;
  target.say(churn("receiver", 2'000 * kLonger, 1));
  sender.say(churn("sender", 0, 2));
  const ChurnReport at_target = parse(target.hear(support::Wait(30'000 * SLOWDOWN)));
  EXPECT_EQ(at_target.violations, 0u)
      << "bytes changed after ibv_dereg_mr in " << at_target.rounds << " rounds";
  EXPECT_GT(at_target.rounds, 20u / SLOWDOWN);
  const ChurnReport report = parse(sender.hear());
  EXPECT_EQ(report.other, 0u) << "status " << report.status << ", of " << report.rounds;
  EXPECT_GT(report.good, 20u / SLOWDOWN);
}

// Registered and unmapped is the program's mistake: a defined status, and nobody else is hurt.
TEST_F(Deregister, UnmappedWhileRegistered) {
  for (const std::string kind : {"heap", "shared"})
    for (const std::string operation : {"write", "read", "add"}) {
      SCOPED_TRACE(kind + " " + operation);
      Couple couple({.bytes = 1 << 16, .kind = kind, .rules = kImpatient});
      couple.target.tell("unmap m");
      const auto one =
          couple.requester.run(operation == "add" ? couple.add(0, 1) : couple.access(operation, 0, 65536));
      // What is mapped by peers is there as long as they have it: an adapter's pages are pinned, too.
      EXPECT_TRUE(one.status == IBV_WC_REM_ACCESS_ERR || (kind == "shared" && one.status == IBV_WC_SUCCESS))
          << one.status;
      couple.target.tell("dereg m");
    }
}

}  // namespace
}  // namespace verbena::local_path
