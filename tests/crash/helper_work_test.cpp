// What the data path has the helper thread do: called when woken and when due, while no agent runs as well,
// and never in a child.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "client/devices.hpp"
#include "client/host_tie.hpp"
#include "client/introduction.hpp"
#include "fleet.hpp"
#include "ipc/rendezvous.hpp"

namespace verbena::crash {
namespace {

using client::HelperWork;
using client::HostTie;
using support::eventually;

class ScriptedWork final : public HelperWork {
 public:
  ~ScriptedWork() override { ended_with_pid = ::getpid(); }

  base::Instant help(base::Instant now) override {
    thread = ::gettid();
    ++calls;
    const int64_t every = every_ns;
    return every > 0 ? now + base::Duration(every) : client::kWhenWoken;
  }
  void watch(std::vector<pollfd>& into) override {
    added_before = static_cast<int>(into.size());
    if (watched >= 0) into.push_back({watched, 0, 0});
  }
  void on_events(std::span<const pollfd> events) override {
    if (events.size() == 1 && events[0].fd == watched) revents = events[0].revents;
    watched = -1;
  }

  std::atomic<int> calls = 0;
  std::atomic<int64_t> every_ns = 0;
  std::atomic<int> thread = 0;
  std::atomic<int> watched = -1;
  std::atomic<int> added_before = 0;
  std::atomic<int> revents = 0;
  static inline std::atomic<int> ended_with_pid = 0;
};

class HelperWorkTest : public FreshHost {
 protected:
  void SetUp() override {
    FreshHost::SetUp();
    open();
    ASSERT_TRUE(device_);
  }
  void TearDown() override {
    HostTie::instance()->set_work(nullptr);
    device_.reset();
    ASSERT_TRUE(eventually([] { return HostTie::instance()->tables().empty(); }));
  }
  void open() {
    auto opened = client::OpenDevice::open("verbena0");
    ASSERT_TRUE(opened) << opened.error().sentence;
    device_ = std::move(*opened);
  }
  // Set, and asleep again after its first call.
  std::shared_ptr<ScriptedWork> start_work() {
    auto work = std::make_shared<ScriptedWork>();
    HostTie::instance()->set_work(work);
    EXPECT_TRUE(eventually([&] { return work->calls > 0; }));
    ::poll(nullptr, 0, 20);
    return work;
  }
  // How long it takes from a wake to a call.
  static base::Duration wake_time(ScriptedWork& work) {
    const int before = work.calls;
    const auto begin = base::now();
    HostTie::instance()->wake_helper();
    EXPECT_TRUE(eventually([&] { return work.calls > before; }));
    return base::now() - begin;
  }

  std::unique_ptr<client::OpenDevice> device_;
};

TEST_F(HelperWorkTest, SegmentsAreThereWhileTheDeviceIs) {
  const auto tie = HostTie::instance();
  EXPECT_FALSE(tie->tables().empty());
  EXPECT_FALSE(tie->rings().empty());
  EXPECT_GT(tie->epoch(), 0u);
  ASSERT_TRUE(tie->claim());
  EXPECT_EQ(tie->claim()->slot, device_->slot().value);
  tie->rings().back() = std::byte{1};
}

TEST_F(HelperWorkTest, IsCalledWhenWokenAndOnlyThen) {
  auto work = start_work();
  EXPECT_NE(work->thread, ::gettid());
  const int before = work->calls;
  ::poll(nullptr, 0, 200);
  EXPECT_EQ(work->calls, before);
  for (int i = 0; i < 200; ++i) wake_time(*work);
  EXPECT_GE(work->calls, before + 200);
}

TEST_F(HelperWorkTest, NoWakeIsLostAmongMany) {
  // Each thread leaves a letter, then wakes; help() takes all that is there.
  class Letters final : public HelperWork {
   public:
    base::Instant help(base::Instant) override {
      for (auto& box : boxes)
        if (box.exchange(false)) ++taken;
      return client::kWhenWoken;
    }
    void watch(std::vector<pollfd>&) override {}
    void on_events(std::span<const pollfd>) override {}
    std::atomic<bool> boxes[4]{};
    std::atomic<int> taken = 0;
  };
  auto letters = std::make_shared<Letters>();
  HostTie::instance()->set_work(letters);
  std::vector<std::thread> senders;
  std::atomic<int> lost = 0;
  for (auto& box : letters->boxes)
    senders.emplace_back([&box, &lost] {
      for (int i = 0; i < 2'000; ++i) {
        box = true;
        HostTie::instance()->wake_helper();
        const auto deadline = base::now() + base::seconds(10);
        while (box && base::now() < deadline) std::this_thread::yield();
        if (box.exchange(false)) ++lost;
      }
    });
  for (auto& sender : senders) sender.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(letters->taken, 8'000);
}

TEST_F(HelperWorkTest, KeepsItsDeadlines) {
  auto work = start_work();
  work->every_ns = 2'000'000;
  wake_time(*work);
  const int before = work->calls;
  const auto begin = base::now();
  EXPECT_TRUE(eventually([&] { return work->calls >= before + 100; }));
  EXPECT_GE(base::now() - begin, base::milliseconds(150)) << "earlier than it asked for";
}

TEST_F(HelperWorkTest, SeesAPeersEnd) {
  auto work = start_work();
  Member peer = enlist();
  auto introduction = client::introduce({static_cast<uint8_t>(peer.slot)});
  ASSERT_TRUE(introduction) << introduction.error().sentence;
  work->watched = introduction->wake.get();
  wake_time(*work);
  EXPECT_EQ(work->revents, 0);
  peer.process.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return (work->revents & POLLHUP) != 0; }));
  const int before = work->calls;
  ::poll(nullptr, 0, 100);
  EXPECT_LE(work->calls, before + 1) << "it sleeps again";
}

TEST_F(HelperWorkTest, GoesOnWhileNoAgentCanBeStarted) {
  // The one process that could start an agent is stopped; we can't.
  Member starter = enlist();
  starter.process.signal(SIGSTOP);
  const char* variable = ::getenv("VERBENA_AGENT");
  ASSERT_NE(variable, nullptr);
  const std::string real = variable;
  ::setenv("VERBENA_AGENT", "/bin/true", 1);
  auto work = start_work();
  const auto slot = device_->slot();
  kill_agent();
  const auto longest_wake = [&](base::Duration duration) {
    base::Duration longest{0};
    for (const auto end = base::now() + duration; base::now() < end; ::poll(nullptr, 0, 5))
      longest = std::max(longest, wake_time(*work));
    return longest;
  };
  EXPECT_LT(longest_wake(base::seconds(2)), base::milliseconds(500));
  EXPECT_FALSE(support::agent_pid());
  {
    // Nor does one that listens and never says a word hold it up.
    const auto mute = ipc::listen_at(ipc::user_agent_name(::geteuid()));
    ASSERT_TRUE(mute) << mute.error().sentence;
    pollfd asked{mute->get(), POLLIN, 0};
    ASSERT_EQ(::poll(&asked, 1, 5'000), 1) << "the helper thread asks it";
    EXPECT_LT(longest_wake(base::seconds(2)), base::milliseconds(500));
  }
  ::setenv("VERBENA_AGENT", real.c_str(), 1);
  starter.process.signal(SIGCONT);
  EXPECT_TRUE(eventually([] { return support::agent_pid() && slots_taken() == 2u; }));
  EXPECT_TRUE(client::introduce(slot)) << "we are back as well";
}

TEST_F(HelperWorkTest, GoesOnWhileTheAgentIsStopped) {
  auto work = start_work();
  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  ::kill(*agent, SIGSTOP);
  for (int i = 0; i < 50; ++i) EXPECT_LT(wake_time(*work), base::milliseconds(500));
  ::kill(*agent, SIGCONT);
}

TEST_F(HelperWorkTest, IsDroppedByItsOwnerAndWithTheAttachment) {
  auto work = start_work();
  ScriptedWork::ended_with_pid = 0;
  HostTie::instance()->set_work(nullptr);
  EXPECT_TRUE(eventually([&] { return work.use_count() == 1; }));
  HostTie::instance()->set_work(std::move(work));
  EXPECT_EQ(ScriptedWork::ended_with_pid, 0);
  device_.reset();
  EXPECT_TRUE(eventually([] { return ScriptedWork::ended_with_pid == ::getpid(); }));
  open();
}

TEST_F(HelperWorkTest, IsNeitherCalledNorEndedInAChild) {
  ScriptedWork::ended_with_pid = 0;
  auto held = start_work();
  const auto tie = HostTie::instance();
  ScriptedWork* work = held.get();
  held.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    const int calls = work->calls;
    if (!tie->tables().empty() || !tie->rings().empty()) ::_exit(1);
    tie->wake_helper();
    device_.reset();
    auto own = client::OpenDevice::open("verbena0");
    if (!own) ::_exit(2);
    if (HostTie::instance()->tables().empty()) ::_exit(3);
    ::poll(nullptr, 0, 50);
    if (work->calls != calls) ::_exit(4);
    ::_exit(ScriptedWork::ended_with_pid == 0 ? 0 : 5);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  wake_time(*work);
}

TEST_F(HelperWorkTest, PeerThatShutsTheWakeSocketCostsNoTime) {
  auto work = start_work();
  auto introduction = client::introduce(device_->slot());  // to ourselves: as a peer would have it
  ASSERT_TRUE(introduction) << introduction.error().sentence;
  ASSERT_EQ(::shutdown(introduction->wake.get(), SHUT_RDWR), 0);
  ::poll(nullptr, 0, 100);
  const int before = work->calls;
  ::poll(nullptr, 0, 200);
  EXPECT_LE(work->calls, before + 1) << "it never sleeps";
  EXPECT_LT(wake_time(*work), base::milliseconds(500)) << "and can still be woken";
}

}  // namespace
}  // namespace verbena::crash
