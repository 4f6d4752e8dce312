// Asynchronous events: what is about a port comes to every open context of every process; what is about an
// object comes to its owner alone.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "connection.hpp"
#include "support/isolated.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace verbena::migration {
namespace {

using support::ip;

struct Seen {
  int type = -1;
  int port = 0;
};

bool next_event(ibv_context* context, Seen& seen, std::chrono::milliseconds wait) {
  pollfd ready{context->async_fd, POLLIN, 0};
  ibv_async_event event{};
  if (::poll(&ready, 1, static_cast<int>(wait.count())) != 1 || ibv_get_async_event(context, &event) != 0)
    return false;
  seen = {event.event_type, event.element.port_num};
  ibv_ack_async_event(&event);
  return true;
}

// An event of that kind and port; others, which an address that comes with a link brings, are passed over.
bool port_event(ibv_context* context, ibv_event_type type, int port) {
  Seen seen;
  while (next_event(context, seen, kSoon))
    if (seen.type == type && seen.port == port) return true;
  return false;
}

// Another process that has the device open and prints what comes.
class Watcher {
 public:
  explicit Watcher(std::string word = "watch") {
    int from[2] = {-1, -1};
    if (::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    char name[] = "/proc/self/exe";
    char* const arguments[] = {name, word.data(), nullptr};
    if (::posix_spawn(&pid_, name, &actions, nullptr, arguments, environ) != 0)
      throw std::runtime_error("posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    ::close(from[1]);
    out_ = ::fdopen(from[0], "r");
    hears(-1, 0);  // it is ready
  }
  ~Watcher() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    std::fclose(out_);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  bool hears(int type, int port) {
    for (Seen seen = next(); seen.type != kEnd; seen = next())
      if (seen.type == type && seen.port == port) return true;
    return false;
  }
  static constexpr int kEnd = -2;
  Seen next() {
    Seen seen;
    return std::fscanf(out_, "%d %d", &seen.type, &seen.port) == 2 ? seen : Seen{kEnd, 0};
  }

 private:
  pid_t pid_ = -1;
  std::FILE* out_ = nullptr;
};

TEST(Events, APortsComeToEveryContextOfEveryProcess) {
  End a(IBV_QPT_RC);
  End b(IBV_QPT_RC);
  Watcher watcher;
  ASSERT_TRUE(ip("addr add 10.9.7.1/24 dev d1"));
  EXPECT_TRUE(port_event(a.context(), IBV_EVENT_GID_CHANGE, 2));
  EXPECT_TRUE(port_event(b.context(), IBV_EVENT_GID_CHANGE, 2));
  EXPECT_TRUE(watcher.hears(IBV_EVENT_GID_CHANGE, 2));
  ASSERT_TRUE(ip("link set d1 down"));
  EXPECT_TRUE(port_event(a.context(), IBV_EVENT_PORT_ERR, 2));
  EXPECT_TRUE(port_event(b.context(), IBV_EVENT_PORT_ERR, 2));
  EXPECT_TRUE(watcher.hears(IBV_EVENT_PORT_ERR, 2));
  ASSERT_TRUE(ip("link set d1 up"));
  EXPECT_TRUE(port_event(a.context(), IBV_EVENT_PORT_ACTIVE, 2));
  EXPECT_TRUE(port_event(b.context(), IBV_EVENT_PORT_ACTIVE, 2));
  EXPECT_TRUE(watcher.hears(IBV_EVENT_PORT_ACTIVE, 2));
}

// A message comes while the receiver is in RTR: COMM_EST, at its own context only, about its queue pair.
TEST(Events, AQueuePairsComeToItsOwnerAlone) {
  End a(IBV_QPT_RC);
  End b(IBV_QPT_RC);
  Watcher watcher;
  a.connect(b);
  b.connect(a, IBV_QPS_RTR);
  EXPECT_TRUE(sends(a, b));
  EXPECT_TRUE(b.told(IBV_EVENT_COMM_EST));
  EXPECT_FALSE(a.told(IBV_EVENT_COMM_EST, kMoment));
  // The watcher's next is a port's.
  ASSERT_TRUE(ip("addr add 10.9.8.1/24 dev d0"));
  EXPECT_TRUE(watcher.hears(IBV_EVENT_GID_CHANGE, 1));
}

// A process that loses its place on the host, here since it closed descriptors that it didn't open, is told
// so at each of its contexts; nobody else is, and their traffic goes on.
TEST(Events, ALostDeviceIsToldToEveryContextOfThatProcessAlone) {
  End a(IBV_QPT_RC);
  End b(IBV_QPT_RC);
  a.connect(b);
  b.connect(a);
  Watcher watcher;
  Watcher loser("lose");
  for (const int context : {0, 1}) {
    const Seen seen = loser.next();
    EXPECT_EQ(seen.type, IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(seen.port, context);
  }
  EXPECT_EQ(loser.next().type, EIO) << "what it asks of the device from then on";
  EXPECT_EQ(loser.next().type, Watcher::kEnd);
  EXPECT_FALSE(a.told(IBV_EVENT_DEVICE_FATAL, kMoment));
  EXPECT_FALSE(b.told(IBV_EVENT_DEVICE_FATAL, kMoment));
  EXPECT_TRUE(sends(a, b));
  ASSERT_TRUE(ip("addr add 10.9.9.1/24 dev d0"));
  EXPECT_EQ(watcher.next().type, IBV_EVENT_GID_CHANGE) << "and nothing before that";
}

}  // namespace

int lose_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr) return 1;
  std::array<ibv_context*, 2> contexts{};
  std::set<int> known{0, 1, 2};
  for (ibv_context*& context : contexts) {
    context = ibv_open_device(list[0]);
    if (context == nullptr) return 2;
    known.insert({context->async_fd, context->cmd_fd});
  }
  std::printf("-1 0\n");
  std::fflush(stdout);
  // As daemons do, too late; but for the sockets by which events come, without which nobody could be told.
  for (int fd = 3; fd < 256; ++fd) {
    int type = 0;
    socklen_t length = sizeof type;
    const bool stream = ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
    if (!stream && !known.contains(fd)) ::close(fd);
  }
  for (size_t i = 0; i < contexts.size(); ++i) {
    Seen seen;
    if (!next_event(contexts[i], seen, kSoon)) return 3;
    std::printf("%d %zu\n", seen.type, i);
  }
  errno = 0;
  const bool made = ibv_create_cq(contexts[0], 1, nullptr, nullptr, 0) != nullptr;
  std::printf("%d 0\n", made ? 0 : errno);
  std::fflush(stdout);
  for (ibv_context* context : contexts)
    if (ibv_close_device(context) != 0) return 4;
  ibv_free_device_list(list);
  return 0;
}

int watch_events() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = list != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (context == nullptr) return 1;
  std::printf("-1 0\n");
  std::fflush(stdout);
  Seen seen;
  while (next_event(context, seen, std::chrono::milliseconds(60'000))) {
    std::printf("%d %d\n", seen.type, seen.port);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace verbena::migration
