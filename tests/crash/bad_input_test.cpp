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

// What an Attach brings, as small as the agent lets it be.
struct Luggage {
  Luggage() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    wake.reset(ends[0]);
    woken.reset(ends[1]);
  }
  base::Result<arena::Segment> tables = arena::create_sealed("t", 4096, arena::Sharing::kOwnerWrites);
  base::Result<arena::Segment> rings = arena::create_sealed("r", 4096, arena::Sharing::kPeersWrite);
  base::UniqueFd wake;
  base::UniqueFd woken;
  base::UniqueFd memory{::open("/proc/self/mem", O_RDWR | O_CLOEXEC)};
};

template <typename M>
base::Result<ipc::Message> ask(int socket, const M& message, std::span<const int> fds = {}) {
  if (auto sent = ipc::send(socket, message, fds); !sent) return std::unexpected(sent.error());
  return ipc::receive_until(socket, base::now() + base::seconds(5));
}

// The errno of a refused introduction; 0: it was none.
int refusal(const ipc::Message& answer) {
  const auto introduced = ipc::expect<ipc::Introduced>(answer);
  return introduced ? 0 : introduced.error().code;
}

TEST_F(BadInput, AttachWithWrongDescriptors) {
  const Luggage luggage;
  const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const base::UniqueFd unwritable(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  const base::UniqueFd environment(::open("/proc/self/comm", O_RDWR | O_CLOEXEC));
  const base::UniqueFd datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const base::UniqueFd internet(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int t = luggage.tables->fd.get(), r = luggage.rings->fd.get(), w = luggage.wake.get();
  const int m = luggage.memory.get(), n = null.get();
  const std::vector<std::vector<int>> wrong = {{t},
                                               {t, r},
                                               {n, n, n},
                                               {r, t, w},
                                               {t, n, w},
                                               {n, r, w},
                                               {t, r, n},
                                               {t, r, t},
                                               {t, r, m},
                                               {r, w, t},
                                               {w, t, r},
                                               {t, w, r},
                                               {t, r, w, m},
                                               {t, r, datagram.get()},
                                               {t, r, internet.get()}};
  for (const auto& fds : wrong) {
    auto answer = ask(greeted().get(), ipc::Attach{}, fds);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << &fds - wrong.data();
  }
  const std::vector<std::vector<int>> wrong_memory = {{t, r, w},
                                                      {t, r, w, n},
                                                      {t, r, w, t},
                                                      {t, r, m, w},
                                                      {t, r, w, unwritable.get()},
                                                      {t, r, w, w},
                                                      {t, r, w, m, m},
                                                      {t, r, w, environment.get()}};
  for (const auto& fds : wrong_memory) {
    auto answer = ask(greeted().get(), ipc::Attach{.has_memory = 1}, fds);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << &fds - wrong_memory.data();
  }
  // By number: files that are no segments, and numbers of nothing.
  for (const int number : {0, 1, -1, 1'000'000, n, INT32_MIN, INT32_MAX}) {
    for (const ipc::Attach& attach :
         {ipc::Attach{.tables = number, .rings = number, .wake = number},
          ipc::Attach{.tables = t, .rings = r, .wake = number},
          ipc::Attach{.tables = t, .rings = r, .wake = w, .memory = number, .has_memory = 1}}) {
      auto answer = ask(greeted().get(), attach);
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << number;
    }
  }
  // Slots that can't be, and one that is somebody else's.
  for (const unsigned slot : {0u, 251u, 255u, 256u, 4'000'000'000u, bystander_.slot}) {
    const std::vector<int> fds = {t, r, w};
    auto answer = ask(greeted().get(), ipc::Attach{.resume = 1, .slot = slot, .epoch = 1}, fds);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->kind, ipc::Kind::kRefused) << slot;
  }
}

TEST_F(BadInput, AttachByNumbersIsAsGood) {
  // As where too many descriptors are in flight (ETOOMANYREFS).
  const Luggage luggage;
  const auto socket = greeted();
  auto answer = ask(socket.get(), ipc::Attach{.tables = luggage.tables->fd.get(),
                                              .rings = luggage.rings->fd.get(),
                                              .wake = luggage.wake.get(),
                                              .memory = luggage.memory.get(),
                                              .has_memory = 1});
  ASSERT_TRUE(answer);
  const auto attached = ipc::expect<ipc::Attached>(*answer);
  ASSERT_TRUE(attached) << attached.error().sentence;
  // And all four come out again.
  const ipc::Introduce oneself{
      .own_slot = attached->slot, .own_epoch = attached->epoch, .slot = attached->slot};
  answer = ask(socket.get(), oneself);
  ASSERT_TRUE(answer);
  const auto introduced = ipc::expect<ipc::Introduced>(*answer);
  ASSERT_TRUE(introduced) << introduced.error().sentence;
  EXPECT_EQ(introduced->pid, ::getpid());
  EXPECT_EQ(introduced->epoch, attached->epoch);
  EXPECT_EQ(answer->fds.size(), 4u);
  answer = ask(socket.get(), ipc::Detach{});
  ASSERT_TRUE(answer && answer->kind == ipc::Kind::kDone);
}

TEST_F(BadInput, IntroductionsUnderAFalseName) {
  const auto bystanders = static_cast<uint32_t>(bystander_.slot);
  const auto code_of = [](const ipc::Introduce& forged, int socket) {
    auto answer = ask(socket, forged);
    return answer ? refusal(*answer) : -1;
  };
  const uint32_t bystanders_epoch = [&] {
    auto link = client::connect_agent({.devices = client::wanted_devices()});
    return arena::SlotWord::unpack(link->registry.layout().slots[bystanders].word.load()).epoch;
  }();
  {
    // We have no slot: neither somebody else's, however well we know it, nor one that can't be.
    const auto socket = greeted();
    for (const uint32_t epoch : {0u, 1u, bystanders_epoch, 0xffffffffu})
      for (const uint32_t own : {bystanders, 0u, 251u, 255u, 256u, bystanders + 256, 0xffffffffu})
        EXPECT_EQ(code_of({.own_slot = own, .own_epoch = epoch, .slot = bystanders}, socket.get()), ESTALE);
  }
  const Luggage luggage;
  const std::vector<int> fds = {luggage.tables->fd.get(), luggage.rings->fd.get(), luggage.wake.get()};
  const auto socket = greeted();
  auto answer = ask(socket.get(), ipc::Attach{}, fds);
  ASSERT_TRUE(answer);
  const auto attached = ipc::expect<ipc::Attached>(*answer);
  ASSERT_TRUE(attached) << attached.error().sentence;
  const uint32_t own = attached->slot;
  for (const uint32_t epoch : {attached->epoch + 1, attached->epoch - 1, attached->epoch + (1u << 24)})
    EXPECT_EQ(code_of({.own_slot = own, .own_epoch = epoch, .slot = bystanders}, socket.get()), ESTALE)
        << epoch;
  for (const uint32_t slot : {0u, 251u, 255u, 256u, bystanders + 256, 0xffffffffu})
    EXPECT_EQ(code_of({.own_slot = own, .own_epoch = attached->epoch, .slot = slot}, socket.get()), ESRCH)
        << slot;
  // With descriptors, or of a wrong length: nothing to talk about.
  const ipc::Introduce good{.own_slot = own, .own_epoch = attached->epoch, .slot = bystanders};
  answer = ask(socket.get(), good, fds);
  ASSERT_TRUE(answer);
  EXPECT_EQ(refusal(*answer), EPROTO);
  // True, on a connection of its own as programs do it, and without memory, since none was brought.
  answer = ask(greeted().get(), good);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(ipc::expect<ipc::Introduced>(*answer)) << "the bystander is who it is";
  EXPECT_EQ(answer->fds.size(), 4u);
  answer = ask(socket.get(), ipc::Introduce{.own_slot = own, .own_epoch = attached->epoch, .slot = own});
  ASSERT_TRUE(answer);
  EXPECT_EQ(ipc::expect<ipc::Introduced>(*answer)->has_memory, 0u);
  EXPECT_EQ(answer->fds.size(), 3u);
  answer = ask(socket.get(), ipc::Detach{});
  ASSERT_TRUE(answer && answer->kind == ipc::Kind::kDone);
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
