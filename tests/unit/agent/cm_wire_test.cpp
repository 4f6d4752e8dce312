// Connection management between two hosts: the MADs go over the network, as the kernel's rxe sends its own.
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "cm_client.hpp"
#include "net/other_host.hpp"

namespace verbena::agent {
namespace {

using ipc::CmEventKind;

constexpr uint16_t kPort = 7471;

// What passes our end of the cable.
class Tap {
 public:
  Tap() : socket_(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
    sockaddr_ll name{};
    name.sll_family = AF_PACKET;
    name.sll_protocol = htons(ETH_P_ALL);  // what leaves is seen only so
    name.sll_ifindex = static_cast<int>(::if_nametoindex("here"));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  // BTH and DETH of each RoCEv2 packet to QP1 that passed so far, as hexadecimal.
  std::vector<std::string> headers() {
    constexpr size_t kBefore = 20 + 8;
    constexpr size_t kHeaders = 12 + 8;
    std::vector<std::string> found;
    unsigned char packet[2048];
    for (ssize_t got = 0; (got = ::recv(socket_.get(), packet, sizeof packet, 0)) >= 0;) {
      if (got < static_cast<ssize_t>(kBefore + kHeaders) || packet[0] != 0x45 || packet[9] != IPPROTO_UDP ||
          (packet[22] << 8 | packet[23]) != 4791)
        continue;
      std::string hex;
      for (size_t i = 0; i < kHeaders; ++i) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += kDigits[packet[kBefore + i] >> 4];
        hex += kDigits[packet[kBefore + i] & 15];
      }
      found.push_back(hex);
    }
    return found;
  }

 private:
  base::UniqueFd socket_;
};

class CmWire : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can join two namespaces";
    host_.emplace();
  }
  // Runs a program on the other host; it says a byte through the pipe when it is ready.
  void start(const std::function<void()>& program) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    host_->in([&] {
      child_ = ::fork();
      if (child_ != 0) return;
      ready_ = ends[1];
      program();
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    });
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "the other host's program doesn't start";
    ::close(ends[0]);
  }
  void ready() const { ASSERT_EQ(::write(ready_, "r", 1), 1); }
  void expect_good_end() {
    int status = -1;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
  }

  std::optional<net::OtherHost> host_;
  pid_t child_ = -1;
  int ready_ = -1;
};

TEST_F(CmWire, ConnectsAndDisconnectsOverBothFamilies) {
  start([this] {
    CmClient server;
    server.create(1);
    EXPECT_EQ(server.bind(1, cm_address("::", kPort)), kPort);
    EXPECT_EQ(server.code(ipc::CmListen{.id = 1}), 0);
    ready();
    for (int i = 0; i < 2; ++i) {
      const auto request = server.event();
      EXPECT_EQ(request.event, CmEventKind::kConnectRequest);
      EXPECT_EQ(server.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x020022}}), 0);
      EXPECT_EQ(server.event().event, CmEventKind::kEstablished);
      EXPECT_EQ(server.event().event, CmEventKind::kDisconnected);
      EXPECT_EQ(server.code(ipc::CmDestroy{.id = request.child}), 0);
    }
  });
  Tap tap;
  CmClient active;
  uint32_t id = 2;
  for (const auto& [here, there] : {std::pair{"10.5.0.1", "10.5.0.2"}, {"fd05::1", "fd05::2"}}) {
    SCOPED_TRACE(there);
    EXPECT_EQ(active.create(id), 0);
    EXPECT_EQ(active.connect(id, cm_address(here), cm_address(there, kPort), 0x010010 + id), 0);
    const auto response = active.event();
    EXPECT_EQ(response.event, CmEventKind::kConnectResponse) << response.status;
    EXPECT_EQ(active.code(ipc::CmEstablish{.id = id}), 0);
    EXPECT_EQ(active.code(ipc::CmDisconnect{.id = id}), 0);
    EXPECT_EQ(active.event().event, CmEventKind::kDisconnected);
    EXPECT_EQ(active.event().event, CmEventKind::kTimewaitExit);
    ++id;
  }
  expect_good_end();
  const auto seen = tap.headers();
  EXPECT_GE(seen.size(), 6u) << "REQ, MRA, REP, RTU, DREQ, DREP";
  // As in tests/golden/rdmacm_rping.pcap, but for the PSN.
  for (const auto& headers : seen) {
    EXPECT_EQ(headers.substr(0, 18), "6400ffff0000000180") << headers;
    EXPECT_EQ(headers.substr(24), "8001000000000001") << headers;
  }
}

TEST_F(CmWire, RefusedAndRejected) {
  start([this] {
    CmClient server;
    server.create(1);
    EXPECT_EQ(server.bind(1, cm_address("10.5.0.2", kPort)), kPort);
    EXPECT_EQ(server.code(ipc::CmListen{.id = 1}), 0);
    ready();
    EXPECT_EQ(server.code(ipc::CmReject{.id = server.event().child, .reason = 27}), 0);
  });
  CmClient active;
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, cm_address("10.5.0.1"), cm_address("10.5.0.2", kPort + 1), 0x11), 0);
  EXPECT_EQ(active.event().status, 8);
  EXPECT_EQ(active.connect(2, cm_address("10.5.0.1"), cm_address("10.5.0.2", kPort), 0x11), 0);
  const auto event = active.event();
  EXPECT_EQ(event.event, CmEventKind::kRejected);
  EXPECT_EQ(event.status, 27);
  expect_good_end();
}

TEST_F(CmWire, KilledServerIsDisconnected) {
  start([this] {
    CmClient server;
    server.create(1);
    EXPECT_EQ(server.bind(1, cm_address("0.0.0.0", kPort)), kPort);
    EXPECT_EQ(server.code(ipc::CmListen{.id = 1}), 0);
    ready();
    const auto request = server.event();
    EXPECT_EQ(server.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x020022}}), 0);
    ::pause();
  });
  CmClient active;
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, cm_address("10.5.0.1"), cm_address("10.5.0.2", kPort), 0x11), 0);
  EXPECT_EQ(active.event().event, CmEventKind::kConnectResponse);
  EXPECT_EQ(active.code(ipc::CmEstablish{.id = 2}), 0);
  ::kill(child_, SIGKILL);
  EXPECT_EQ(active.event().event, CmEventKind::kDisconnected);
  ::waitpid(child_, nullptr, 0);
}

}  // namespace
}  // namespace verbena::agent
