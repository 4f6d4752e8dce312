// Whatever is sent to the agent closes the connection that sent it, and costs nobody else anything.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "arena/process_segments.hpp"
#include "arena/segment.hpp"
#include "client/agent_link.hpp"
#include "fleet.hpp"
#include "ipc/channel.hpp"
#include "ipc/rendezvous.hpp"
#include "support/isolated.hpp"

namespace verbena::crash {
namespace {

class BadInput : public testing::Test {
 protected:
  void SetUp() override {
    agent_ = support::agent_pid();
    ASSERT_TRUE(agent_);
    descriptors_ = support::descriptor_count(*agent_);
  }
  // The agent is the same process, the bystander works, nothing is left over.
  void TearDown() override {
    EXPECT_TRUE(reached(bystander_, "still here"));
    EXPECT_EQ(support::agent_pid(), agent_);
    EXPECT_TRUE(support::eventually([&] { return support::descriptor_count(*agent_) <= descriptors_; }))
        << support::descriptor_count(*agent_) << " descriptors, " << descriptors_ << " before";
    EXPECT_EQ(slots_taken(), 1u);
  }

  static base::UniqueFd connect() {
    base::UniqueFd socket;
    support::eventually([&] {
      auto made = ipc::connect_to(ipc::user_agent_name(::geteuid()));
      if (made) socket = std::move(*made);
      return static_cast<bool>(socket);
    });
    return socket;
  }
  static base::UniqueFd greeted() {
    auto socket = connect();
    EXPECT_TRUE(ipc::send(socket.get(), ipc::Hello{}));
    auto welcome = ipc::receive_until(socket.get(), base::now() + base::seconds(5));
    EXPECT_TRUE(welcome && welcome->kind == ipc::Kind::kWelcome);
    return socket;
  }
  // Reads answers until the agent closes; true if it did, with a Refused somewhere before.
  static bool refused_and_closed(int socket) {
    bool refused = false;
    for (;;) {
      auto message = ipc::receive_until(socket, base::now() + base::seconds(5));
      if (!message) return refused && message.error().code == ECONNRESET;
      refused |= message->kind == ipc::Kind::kRefused;
    }
  }

  Member bystander_ = enlist();
  std::optional<pid_t> agent_;
  int descriptors_ = 0;
};

TEST_F(BadInput, BytesThatAreNoMessage) {
  std::mt19937 random(4791);
  for (int i = 0; i < 3000; ++i) {
    const auto socket = connect();
    std::vector<std::byte> bytes(random() % 1400 + 1);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (i % 2 == 0 && bytes.size() >= sizeof(ipc::Header)) {  // a good head before bad content
      const ipc::Header head{.kind = static_cast<ipc::Kind>(random() % 16)};
      std::memcpy(bytes.data(), &head, sizeof head);
    }
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(support::eventually([] { return counter("bad_messages") >= 2000u; }))
      << counter("bad_messages").value_or(0);
}

TEST_F(BadInput, EachIsToldWhy) {
  {
    const auto socket = connect();
    ASSERT_GT(::send(socket.get(), "nonsense", 8, 0), 0);
    EXPECT_TRUE(refused_and_closed(socket.get()));
  }
  {
    const auto socket = connect();  // before any Hello
    ASSERT_TRUE(ipc::send(socket.get(), ipc::Detach{}));
    EXPECT_TRUE(refused_and_closed(socket.get()));
  }
  {
    const auto socket = connect();
    ipc::Hello hello;
    ipc::set_text(hello.spec, "no port named");
    ASSERT_TRUE(ipc::send(socket.get(), hello));
    EXPECT_TRUE(refused_and_closed(socket.get()));
  }
  {
    const auto socket = greeted();
    ASSERT_TRUE(ipc::send(socket.get(), ipc::Hello{}));  // a second one
    EXPECT_TRUE(refused_and_closed(socket.get()));
  }
  {
    const auto socket = connect();
    ipc::Header head{.version = 99, .kind = ipc::Kind::kHello};
    ASSERT_GT(::send(socket.get(), &head, sizeof head, 0), 0);
    auto answer = ipc::receive_until(socket.get(), base::now() + base::seconds(5));
    ASSERT_TRUE(answer);
    const auto refused = ipc::expect<ipc::Done>(*answer);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().sentence.find("different versions"), std::string::npos)
        << refused.error().sentence;
  }
}

TEST_F(BadInput, AttachWithWrongDescriptors) {
  auto tables = arena::create_sealed("t", 4096, arena::Sharing::kOwnerWrites);
  auto rings = arena::create_sealed("r", 4096, arena::Sharing::kPeersWrite);
  const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int t = tables->fd.get(), r = rings->fd.get(), n = null.get();
  const std::vector<std::vector<int>> wrong = {{t}, {n, n}, {r, t}, {t, n}, {n, r}, {t, r, n}};
  for (const auto& fds : wrong) {
    const auto socket = greeted();
    ASSERT_TRUE(ipc::send(socket.get(), ipc::Attach{}, fds));
    auto answer = ipc::receive_until(socket.get(), base::now() + base::seconds(5));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused);
  }
  // By number: files that are no segments, and numbers of nothing.
  for (const int number : {0, 1, -1, 1'000'000, n, INT32_MIN, INT32_MAX}) {
    const auto socket = greeted();
    ASSERT_TRUE(ipc::send(socket.get(), ipc::Attach{.tables = number, .rings = number}));
    auto answer = ipc::receive_until(socket.get(), base::now() + base::seconds(5));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << number;
  }
  // Slots that can't be, and one that is somebody else's.
  for (const unsigned slot : {0u, 251u, 255u, 256u, 4'000'000'000u, bystander_.slot}) {
    const auto socket = greeted();
    const std::vector<int> fds = {t, r};
    ASSERT_TRUE(ipc::send(socket.get(), ipc::Attach{.resume = 1, .slot = slot, .epoch = 1}, fds));
    auto answer = ipc::receive_until(socket.get(), base::now() + base::seconds(5));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << slot;
  }
}

TEST_F(BadInput, SilentConnectionsAndUnreadAnswers) {
  std::vector<base::UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect());
  // Asks without end and never reads: the agent must not wait for it.
  const auto greedy = greeted();
  for (int i = 0; i < 5000; ++i)
    if (!ipc::send(greedy.get(), ipc::Stop{}) && errno != EAGAIN) break;
  Member newcomer = enlist();
  EXPECT_TRUE(reached(newcomer, "served meanwhile"));
}

TEST_F(BadInput, DevicesThatCantBe) {
  for (const char* spec : {"a=nosuchif0", "x=lo;x=lo", "=lo", "a=", "../../etc=lo", "a=lo,lo,lo,lo,lo"}) {
    auto link = client::connect_agent({.devices = spec});
    if (std::string(spec) == "a=nosuchif0") {
      // An interface may come later: until then the port is down.
      ASSERT_TRUE(link);
      EXPECT_EQ(link->registry.read_view(link->welcome.view)->devices[0].ports[0].state,
                arena::PortState::kDown);
    } else {
      ASSERT_FALSE(link) << spec;
      EXPECT_EQ(link.error().code, EINVAL) << spec;
    }
  }
  std::vector<client::AgentLink> links;
  for (unsigned i = 0; i < arena::kMaxViews; ++i) {
    auto link = client::connect_agent({.devices = "dev" + std::to_string(i) + "=lo"});
    if (!link) {
      EXPECT_EQ(link.error().code, ENOSPC);
      EXPECT_GE(i, arena::kMaxViews - 2);
      break;
    }
    links.push_back(std::move(*link));
  }
  links.clear();
  EXPECT_TRUE(support::eventually([] { return client::connect_agent({.devices = "again=lo"}).has_value(); }));
}

}  // namespace
}  // namespace verbena::crash
