// Peers and agents that die.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

// The process's own agent: the listener's name says which (of the namespace, so there is one).
pid_t agent_pid() {
  FILE* lines = ::popen("pgrep -x verbena-agent", "r");
  pid_t found = 0;
  int candidate = 0;
  struct stat ours {};
  (void)::stat("/proc/self/ns/net", &ours);
  while (lines != nullptr && std::fscanf(lines, "%d", &candidate) == 1) {
    struct stat theirs {};
    const std::string path = "/proc/" + std::to_string(candidate) + "/ns/net";
    if (::stat(path.c_str(), &theirs) == 0 && theirs.st_ino == ours.st_ino) found = candidate;
  }
  if (lines != nullptr) ::pclose(lines);
  return found;
}

// A child process that connects, tells by a byte that it is, and sleeps.
class ConnectedChild {
 public:
  explicit ConnectedChild(uint16_t port) {
    int ends[2];
    must(::pipe(ends), "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      const auto id = make_id(nullptr);
      Address there("127.0.0.1", port);
      if (rdma_resolve_addr(id.get(), nullptr, there.get(), 2000) != 0) ::_exit(1);
      if (rdma_resolve_route(id.get(), 2000) != 0) ::_exit(2);
      give_queue_pair(id.get());
      if (rdma_connect(id.get(), nullptr) != 0) ::_exit(3);
      const char done = 1;
      if (::write(ends[1], &done, 1) != 1) ::_exit(4);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    told_ = ends[0];
  }
  ~ConnectedChild() {
    kill();
    ::close(told_);
  }
  [[nodiscard]] bool connected() const {
    char done = 0;
    return readable(told_, kLong) && ::read(told_, &done, 1) == 1;
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int told_ = -1;
};

struct Server {
  Channel channel = make_channel();
  Id listener = make_id(channel.get());
  Server() {
    Address here("127.0.0.1");
    must(rdma_bind_addr(listener.get(), here.get()), "rdma_bind_addr");
    must(rdma_listen(listener.get(), 4), "rdma_listen");
  }
  [[nodiscard]] uint16_t port() const { return ntohs(rdma_get_src_port(listener.get())); }
  Id serve() {
    const Event request = next(channel.get());
    if (!request.came || request.type != RDMA_CM_EVENT_CONNECT_REQUEST)
      throw std::runtime_error("no request");
    Id served(request.id);
    give_queue_pair(served.get());
    must(rdma_accept(served.get(), nullptr), "rdma_accept");
    EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_ESTABLISHED));
    return served;
  }
};

TEST(Loss, AKilledPeerIsADisconnect) {
  Server server;
  ConnectedChild child(server.port());
  const auto served = server.serve();
  ASSERT_TRUE(child.connected());
  const auto begin = std::chrono::steady_clock::now();
  child.kill();
  EXPECT_TRUE(next_is(server.channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(state_of(served->qp), IBV_QPS_RTS);  // for the program to end
}

TEST(Loss, AKilledAgentLeavesConnectionsAndListeners) {
  Server server;
  ConnectedChild child(server.port());
  const auto served = server.serve();
  ASSERT_TRUE(child.connected());
  Pair pair;
  const pid_t before = agent_pid();
  ASSERT_GT(before, 0);
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  exchange(pair.active.get(), pair.passive.get());
  // Nobody calls anything: the processes come back by themselves, and events still come.
  for (int i = 0; i < 1000 && (agent_pid() == 0 || agent_pid() == before); ++i)
    std::this_thread::sleep_for(Wait(10));
  std::this_thread::sleep_for(Wait(3000));  // for the child, of which nothing can be seen
  child.kill();
  EXPECT_TRUE(next_is(server.channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_NE(agent_pid(), before);
  EXPECT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(rdma_disconnect(pair.passive.get()), 0);
  EXPECT_TRUE(next_is(pair.active_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
  // The listener listens.
  ConnectedChild another(server.port());
  const auto served_after = server.serve();
  EXPECT_TRUE(another.connected());
}

TEST(Loss, AnAgentKilledBetweenRequestAndAnswerEndsInAnEvent) {
  Pair pair(Pair::Unanswered{});
  give_queue_pair(pair.passive.get());
  ASSERT_EQ(::kill(agent_pid(), SIGKILL), 0);
  const Event ended = next(pair.active_channel.get());
  EXPECT_TRUE(ended.came);
  EXPECT_EQ(ended.type, RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(ended.status, -ETIMEDOUT);
  EXPECT_EQ(rdma_accept(pair.passive.get(), nullptr), -1);  // its asker is gone
}

}  // namespace
}  // namespace verbena::cm_test
