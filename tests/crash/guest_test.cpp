// A good guest in somebody else's process (DESIGN 2.7): fork, exec, closed descriptors, changing addresses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "client/devices.hpp"
#include "client/host_tie.hpp"
#include "fleet.hpp"
#include "support/isolated.hpp"

namespace verbena::crash {
namespace {

using client::OpenDevice;
using Guest = FreshHost;

std::unique_ptr<OpenDevice> open_device() {
  auto device = OpenDevice::open("verbena0");
  EXPECT_TRUE(device) << (device ? "" : device.error().sentence);
  return device ? std::move(*device) : nullptr;
}

// Runs `body` in a child and returns its exit status; gtest failures don't cross, so the body returns a
// number.
int in_child(int (*body)(OpenDevice&), OpenDevice& inherited) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body(inherited));
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(Guest, ForkedChildHasNothingOfItsParentsAndOpensItsOwn) {
  auto device = open_device();
  const auto slot = device->slot();
  EXPECT_EQ(in_child(
                [](OpenDevice& inherited) {
                  if (!inherited.stale()) return 1;
                  if (inherited.record() || inherited.record().error().code != EIO) return 2;
                  auto own = OpenDevice::open("verbena0");
                  if (!own) return 3;
                  if ((*own)->stale() || !(*own)->record()) return 4;
                  return (*own)->slot() == inherited.slot() ? 5 : 0;
                },
                *device),
            0);
  EXPECT_FALSE(device->stale());
  EXPECT_TRUE(device->record());
  EXPECT_EQ(device->slot(), slot);
  EXPECT_TRUE(support::eventually([] { return slots_taken() == 1u; }));
}

TEST_F(Guest, ParentsDeathIsSeenThoughAChildLivesOn) {
  Member parent = enlist();
  auto script = support::Process::start({TEST_CLIENT});
  ASSERT_TRUE(script.hear());
  EXPECT_EQ(slots_taken(), 2u);
  script.signal(SIGKILL);
  EXPECT_TRUE(support::eventually([] { return slots_taken() == 1u; }));
}

TEST_F(Guest, StartingTheAgentLeavesNoChildAndNoSignal) {
  static volatile sig_atomic_t children_died = 0;
  children_died = 0;
  struct sigaction watch {};
  watch.sa_handler = [](int) { children_died = children_died + 1; };
  struct sigaction before {};
  ::sigaction(SIGCHLD, &watch, &before);
  ASSERT_FALSE(support::agent_pid());
  auto device = open_device();
  ASSERT_TRUE(support::agent_pid());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  ::sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(children_died, 0);
}

TEST_F(Guest, ClosingAllDescriptorsGivesErrorsNotCorruption) {
  auto device = open_device();
  const int status = in_child(
      [](OpenDevice&) {
        auto own = OpenDevice::open("verbena0");
        if (!own) return 1;
        // As daemons do; then the numbers become files of the program.
        for (int fd = 3; fd < 256; ++fd) ::close(fd);
        int pipes[2];
        for (int i = 0; i < 20; ++i)
          if (::pipe(pipes) != 0) return 2;
        ::poll(nullptr, 0, 300);  // the helper thread had its chance to do harm
        for (int fd = 3; fd < 43; ++fd)
          if (::fcntl(fd, F_GETFD) < 0) return 3;  // closed under the program
        own->reset();
        for (int fd = 3; fd < 43; ++fd)
          if (::fcntl(fd, F_GETFD) < 0) return 4;
        return 0;
      },
      *device);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(device->record());
}

TEST_F(Guest, ExecGivesTheSlotBack) {
  Member member = enlist();
  for (int i = 0; i < 5; ++i) {
    member.process.say("exec");
    const auto line = member.process.hear();
    ASSERT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
    EXPECT_TRUE(support::eventually([] { return slots_taken() == 1u; })) << slots_taken().value_or(0);
  }
}

TEST_F(Guest, ClosingTheLastDeviceGivesTheSlotBackAfterAMoment) {
  Member anchor = enlist();
  Member member = enlist();
  member.process.say("close");
  EXPECT_EQ(member.process.hear(), "closed");
  member.process.say("open");  // at once: the same slot
  EXPECT_EQ(member.process.hear(), "slot " + std::to_string(member.slot));
  member.process.say("close");
  EXPECT_EQ(member.process.hear(), "closed");
  EXPECT_TRUE(support::eventually([] { return slots_taken() == 1u; }));
  member.process.say("open");
  const auto line = member.process.hear();
  EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
}

TEST_F(Guest, HelperThreadTakesNoSignalsAndNoTime) {
  auto device = open_device();
  ::poll(nullptr, 0, 50);
  const std::string tasks = "/proc/" + std::to_string(::getpid()) + "/task/";
  const std::string helper = support::shell("grep -lx verbena " + tasks + "*/comm").text;
  ASSERT_TRUE(helper.starts_with(tasks)) << "one helper thread, by name: " << helper;
  ASSERT_EQ(std::ranges::count(helper, '\n'), 1) << helper;
  const std::string status = helper.substr(0, helper.rfind('/')) + "/status";
  const auto wakes = [&] {
    return std::stoi(support::shell("sed -n 's/^voluntary_ctxt_switches://p' " + status).text);
  };
  const int before = wakes();
  ::poll(nullptr, 0, 500);
  EXPECT_EQ(wakes(), before) << "it wakes up while nothing happens";
  const auto mask = support::shell("grep SigBlk " + status);
  EXPECT_NE(mask.text.find("fffffffe7ff"), std::string::npos) << mask.text;
}

TEST_F(Guest, AddressesComeAndGo) {
  ASSERT_TRUE(support::ip("link add va type veth peer name vb") &&
              support::ip("addr add 10.77.1.1/24 dev va") && support::ip("link set va up") &&
              support::ip("link set vb up"));
  auto device = open_device();
  const auto gid_index = [&](const std::string& suffix) {
    const auto record = device->record();
    for (int i = 0; i < static_cast<int>(arena::kMaxGids); ++i) {
      const auto& gid = record->ports[0].gids[i];
      const std::string tail(gid.raw.end() - 4, gid.raw.end());
      if (gid.used != 0 && tail == suffix) return i;
    }
    return -1;
  };
  const std::string first{"\x0a\x4d\x01\x01", 4};
  const std::string second{"\x0a\x4d\x01\x02", 4};
  const std::string loopback{"\x7f\x00\x00\x01", 4};
  EXPECT_EQ(gid_index(first), 0);
  const int loopback_index = gid_index(loopback);
  EXPECT_GT(loopback_index, 0);

  ASSERT_TRUE(support::ip("addr add 10.77.1.2/24 dev va"));
  EXPECT_TRUE(support::eventually([&] { return gid_index(second) >= 0; }));
  const auto event = device->events().take();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(event->element, 1u);
  EXPECT_EQ(gid_index(first), 0);
  EXPECT_EQ(gid_index(loopback), loopback_index) << "a new address appends, it moves nothing";

  // The same over the agent's death: indices belong to the processes that saw them.
  ASSERT_TRUE(support::ip("addr del 10.77.1.1/24 dev va"));
  EXPECT_TRUE(support::eventually([&] { return gid_index(first) < 0; }));
  const auto agent = support::agent_pid();
  kill_agent();
  ASSERT_TRUE(next_agent(*agent));
  EXPECT_EQ(gid_index(loopback), loopback_index);
  ASSERT_TRUE(support::ip("addr add 10.77.1.1/24 dev va"));
  EXPECT_TRUE(support::eventually([&] { return gid_index(first) == 0; })) << "it gets its old place back";
  ASSERT_TRUE(support::ip("link del va"));
}

TEST_F(Guest, PortFollowsItsInterface) {
  ASSERT_TRUE(support::ip("link add vc type veth peer name vd") && support::ip("link set vc up") &&
              support::ip("link set vd up"));
  ::setenv("VERBENA_DEVICES", "verbena0=vc", 1);
  const auto types = [](OpenDevice& device) {
    std::vector<int> seen;
    pollfd ready{device.events().fd(), POLLIN, 0};
    while (::poll(&ready, 1, 0) > 0) seen.push_back(device.events().take()->type);
    return seen;
  };
  {
    auto device = open_device();
    ASSERT_EQ(device->record()->ports[0].state, arena::PortState::kActive);
    ASSERT_TRUE(support::ip("link set vd down"));
    std::vector<int> seen;
    EXPECT_TRUE(support::eventually([&] {
      std::ranges::copy(types(*device), std::back_inserter(seen));
      return std::ranges::count(seen, IBV_EVENT_PORT_ERR) > 0;
    }));
    ASSERT_TRUE(support::ip("link set vd up"));
    EXPECT_TRUE(support::eventually([&] {
      std::ranges::copy(types(*device), std::back_inserter(seen));
      return std::ranges::count(seen, IBV_EVENT_PORT_ACTIVE) > 0;
    }));
  }
  ::unsetenv("VERBENA_DEVICES");
  ASSERT_TRUE(support::ip("link del vc"));
}

}  // namespace
}  // namespace verbena::crash
