// The keeper is killed: who had its target queue pairs hears of it, and begins anew. The agent is killed: XRC
// goes on.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "pair.hpp"

namespace verbena::xrc {
namespace {

// The process of that name in this network namespace; 0: there is none.
pid_t find_process(const std::string& name, pid_t but = 0) {
  std::error_code gone;
  const auto ours = std::filesystem::read_symlink("/proc/self/ns/net");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string number = entry.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string comm;
    std::getline(std::ifstream(entry.path() / "comm"), comm);
    if (comm != name.substr(0, 15) || std::filesystem::read_symlink(entry.path() / "ns/net", gone) != ours)
      continue;
    if (const pid_t found = std::stoi(number); found != but) return found;
  }
  return 0;
}

// Kills it, and returns its pid; 0: there was none.
pid_t kill_process(const std::string& name) {
  const pid_t found = find_process(name);
  if (found != 0) ::kill(found, SIGKILL);
  return found;
}

template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(1000);
  }
  return true;
}

// What another process has to say.
struct Board {
  std::atomic<uint32_t> target;
  std::atomic<uint32_t> opened;
  std::atomic<uint32_t> told;
};

TEST(Ended, KeeperKilled) {
  FILE* file = std::tmpfile();
  ASSERT_NE(nullptr, file);
  auto* board = static_cast<Board*>(
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(MAP_FAILED, static_cast<void*>(board));
  const pid_t other = ::fork();
  if (other == 0) {  // opens the target of the parent's
    Party party(::fileno(file));
    if (!eventually([&] { return board->target != 0; })) std::_Exit(1);
    ibv_qp* opened = party.open_target(board->target);
    if (opened == nullptr) std::_Exit(2);
    board->opened = 1;
    const ibv_async_event event = next_event(party.context(), 20'000);
    board->told = event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == opened ? 1 : 2;
    std::_Exit(0);
  }
  {
    Pair pair;
    ASSERT_TRUE(pair.connect());
    ASSERT_EQ(IBV_WC_SUCCESS, pair.send());
    Party shared(::fileno(file));
    ibv_qp* target = shared.make_target();
    ASSERT_NE(nullptr, target);
    board->target = target->qp_num;
    ASSERT_TRUE(eventually([&] { return board->opened != 0; }));

    ASSERT_NE(0, kill_process("verbena-keeper"));
    const ibv_async_event event = next_event(pair.party.context());
    EXPECT_EQ(IBV_EVENT_QP_FATAL, event.event_type);
    EXPECT_EQ(pair.target, event.element.qp);
    EXPECT_EQ(IBV_EVENT_QP_FATAL, next_event(shared.context()).event_type);
    EXPECT_TRUE(eventually([&] { return board->told != 0; }));
    EXPECT_EQ(1u, board->told);
    EXPECT_EQ(IBV_WC_RETRY_EXC_ERR, pair.send());
    EXPECT_EQ(nullptr, pair.party.make_target());
    EXPECT_EQ(EIO, errno);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(EIO, ibv_modify_qp(pair.target, &attr, IBV_QP_STATE));
    // With the old objects still there.
    Pair anew;
    ASSERT_TRUE(anew.connect());
    EXPECT_EQ(IBV_WC_SUCCESS, anew.send());
  }
  Pair pair;
  ASSERT_TRUE(pair.connect());
  EXPECT_EQ(IBV_WC_SUCCESS, pair.send());
  ::waitpid(other, nullptr, 0);
  ::munmap(board, sizeof(Board));
  std::fclose(file);
}

TEST(Ended, AgentKilled) {
  Pair pair;
  ASSERT_TRUE(pair.connect());
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    const pid_t old = kill_process("verbena-agent");
    ASSERT_NE(0, old);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(IBV_WC_SUCCESS, pair.send()) << i;
    ASSERT_TRUE(eventually([&] { return find_process("verbena-agent", old) != 0; }));
    Pair another;
    ASSERT_TRUE(another.connect());
    EXPECT_EQ(IBV_WC_SUCCESS, another.send());
    EXPECT_EQ(IBV_WC_SUCCESS, pair.send());
  }
}

}  // namespace
}  // namespace verbena::xrc
