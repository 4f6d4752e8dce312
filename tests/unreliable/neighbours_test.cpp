// Datagrams between processes of one host, which go past the socket: peers that answer, stop, die, and many.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "end.hpp"
#include "support/counters.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace verbena::unreliable {
namespace {

using support::counter;

class Neighbour {
 public:
  Neighbour() {
    int to[2] = {-1, -1};
    int from[2] = {-1, -1};
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    char name[] = UNRELIABLE_NEIGHBOUR;
    char* const arguments[] = {name, nullptr};
    if (::posix_spawn(&pid_, name, &actions, nullptr, arguments, environ) != 0)
      throw std::runtime_error("posix_spawn " UNRELIABLE_NEIGHBOUR);
    posix_spawn_file_actions_destroy(&actions);
    ::close(to[0]);
    ::close(from[1]);
    in_ = ::fdopen(to[1], "w");
    out_ = ::fdopen(from[0], "r");
    number_ = hear();
  }
  ~Neighbour() {
    kill();
    std::fclose(in_);
    std::fclose(out_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  [[nodiscard]] uint32_t number() const { return number_; }
  void say(const char* word, unsigned count) {
    std::fprintf(in_, "%s %u\n", word, count);
    std::fflush(in_);
  }
  [[nodiscard]] unsigned hear() {
    unsigned number = 0;
    return std::fscanf(out_, "%u", &number) == 1 ? number : UINT32_MAX;
  }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);  // all its threads
  }
  void go_on() const { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
  uint32_t number_ = 0;
};

bool by_wire() {
  const char* path = std::getenv("VERBENA_PATH");
  return path != nullptr && std::string(path) == "wire";
}

bool counts(End& end, const std::string& name, uint64_t at_least) {
  const auto until = std::chrono::steady_clock::now() + kSoon;
  ibv_wc completion{};
  while (counter(name) < at_least) {
    if (std::chrono::steady_clock::now() > until) return false;
    while (end.next(completion, std::chrono::milliseconds(30))) continue;  // who polls shows counters, too
  }
  return true;
}

struct Neighbours : testing::Test {
  Neighbours() {
    end.ready_datagrams();
    handle = end.handle_to(end);  // any of this host
  }
  ~Neighbours() override { EXPECT_EQ(ibv_destroy_ah(handle), 0); }
  [[nodiscard]] Message to(const Neighbour& peer, uint64_t wr_id, uint32_t length) const {
    return {.wr_id = wr_id, .length = length, .ah = handle, .target = peer.number()};
  }
  End end{IBV_QPT_UD};
  ibv_ah* handle = nullptr;
};

TEST_F(Neighbours, AnswerWhatTheyGet) {
  Neighbour peer;
  const uint64_t before = counter("lane_sent");
  peer.say("answer", 100);
  for (uint64_t i = 0; i < 100; ++i) {
    const auto length = static_cast<uint32_t>(i * 41 % 1025);
    end.receive(500 + i, 8192, 4200);
    end.fill(0, length, static_cast<uint8_t>(i));
    ASSERT_EQ(end.post(to(peer, i, length)), 0);
    ASSERT_TRUE(end.next_is(i, IBV_WC_SUCCESS));
    ibv_wc completion{};
    ASSERT_TRUE(end.next(completion)) << i;
    EXPECT_EQ(completion.src_qp, peer.number());
    EXPECT_EQ(completion.byte_len, length + 40);
    EXPECT_TRUE(end.holds(8192 + 40, length, static_cast<uint8_t>(i))) << i;
  }
  EXPECT_EQ(peer.hear(), 100u);
  if (by_wire())
    EXPECT_EQ(counter("lane_sent"), 0u);
  else
    EXPECT_TRUE(counts(end, "lane_sent", before + 100));
}

// The box takes some, the rest is lost; nobody waits for long, and when it goes on it gets what is sent then.
TEST_F(Neighbours, OneThatIsStoppedHoldsNobodyUp) {
  constexpr uint64_t kCount = 500;
  Neighbour peer;
  Neighbour other;
  peer.say("take", 1);
  ASSERT_EQ(end.post(to(peer, 0, 64)), 0);
  ASSERT_TRUE(end.next_is(0, IBV_WC_SUCCESS));
  ASSERT_EQ(peer.hear(), 1u);
  peer.stop();
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(end.post(to(peer, i, 1024)), 0);
    ASSERT_TRUE(end.next_is(i, IBV_WC_SUCCESS));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  if (!by_wire()) {
    EXPECT_TRUE(counts(end, "lane_lost", 300));
  }
  other.say("take", 1);
  ASSERT_EQ(end.post(to(other, 1, 64)), 0);
  ASSERT_TRUE(end.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(other.hear(), 1u);
  peer.go_on();
  peer.say("take", 1000);  // until none comes for two seconds
  EXPECT_GT(peer.hear(), 50u);
  peer.say("take", 1);
  ASSERT_EQ(end.post(to(peer, 1, 64)), 0);
  ASSERT_TRUE(end.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(peer.hear(), 1u);
}

TEST_F(Neighbours, OneThatDiedLosesWhatIsSentToIt) {
  Neighbour peer;
  peer.say("take", 1);
  ASSERT_EQ(end.post(to(peer, 0, 64)), 0);
  ASSERT_TRUE(end.next_is(0, IBV_WC_SUCCESS));
  ASSERT_EQ(peer.hear(), 1u);
  peer.kill();
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(end.post(to(peer, i, 64)), 0);
    ASSERT_TRUE(end.next_is(i, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(end.state(), IBV_QPS_RTS);
}

TEST_F(Neighbours, OneQueuePairServesManyProcesses) {
  std::vector<std::unique_ptr<Neighbour>> peers;
  for (int i = 0; i < 12; ++i) peers.push_back(std::make_unique<Neighbour>());
  for (auto& peer : peers) peer->say("take", 100);
  for (uint64_t i = 0; i < 100; ++i)
    for (auto& peer : peers) {
      ASSERT_EQ(end.post(to(*peer, i, 256)), 0);
      ASSERT_TRUE(end.next_is(i, IBV_WC_SUCCESS));
    }
  for (auto& peer : peers) EXPECT_EQ(peer->hear(), 100u);
}

}  // namespace
}  // namespace verbena::unreliable
