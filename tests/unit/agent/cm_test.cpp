// Connection management through a real agent, by the contract between it and processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "cm_client.hpp"
#include "support/process.hpp"

namespace verbena::agent {
namespace {

using ipc::CmEventKind;
using ipc::CmPortSpace;

const ipc::CmAddress kHere = cm_address("127.0.0.1");

ipc::CmAddress here(uint16_t port) { return cm_address("127.0.0.1", port); }

// Connects id 2 of `active` to a listener 1 of `passive`; the passive side's id.
uint32_t establish(CmClient& active, CmClient& passive) {
  const uint16_t port = passive.listen(1, kHere);
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, kHere, here(port), 0x010011), 0);
  const auto request = passive.event();
  EXPECT_EQ(request.event, CmEventKind::kConnectRequest);
  EXPECT_EQ(request.id, 1u);
  EXPECT_GE(request.child, ipc::kFirstChild);
  EXPECT_EQ(request.parameters.qpn, 0x010011u);
  EXPECT_EQ(request.local.port, port);
  EXPECT_EQ(passive.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x020022}}), 0);
  const auto response = active.event();
  EXPECT_EQ(response.event, CmEventKind::kConnectResponse);
  EXPECT_EQ(response.id, 2u);
  EXPECT_EQ(response.parameters.qpn, 0x020022u);
  EXPECT_EQ(response.local.port, request.remote.port);
  EXPECT_EQ(active.code(ipc::CmEstablish{.id = 2}), 0);
  const auto established = passive.event();
  EXPECT_EQ(established.event, CmEventKind::kEstablished);
  EXPECT_EQ(established.id, request.child);
  return request.child;
}

TEST(Cm, ConnectsAndDisconnects) {
  CmClient active;
  CmClient passive;
  const uint32_t child = establish(active, passive);
  EXPECT_EQ(active.code(ipc::CmDisconnect{.id = 2}), 0);
  const auto gone = passive.event();
  EXPECT_EQ(gone.event, CmEventKind::kDisconnected);
  EXPECT_EQ(gone.id, child);
  EXPECT_EQ(passive.code(ipc::CmDisconnect{.id = child}), 0);
  EXPECT_EQ(active.event().event, CmEventKind::kDisconnected);
  EXPECT_EQ(active.event().event, CmEventKind::kTimewaitExit);
  EXPECT_EQ(active.code(ipc::CmDestroy{.id = 2}), 0);
  EXPECT_EQ(active.code(ipc::CmDestroy{.id = 2}), EINVAL);
}

TEST(Cm, IsRefusedWhereNobodyListens) {
  CmClient active;
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, kHere, here(7471), 0x11), 0);
  const auto event = active.event();
  EXPECT_EQ(event.event, CmEventKind::kRejected);
  EXPECT_EQ(event.status, 8);
}

TEST(Cm, IsRejectedWithData) {
  CmClient active;
  CmClient passive;
  const uint16_t port = passive.listen(1, kHere);
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, kHere, here(port), 0x11), 0);
  ipc::CmReject reject{.id = passive.event().child, .private_length = 4};
  std::memcpy(reject.private_data, "nope", 4);
  EXPECT_EQ(passive.code(reject), 0);
  const auto event = active.event();
  EXPECT_EQ(event.event, CmEventKind::kRejected);
  EXPECT_EQ(event.status, 28);
  EXPECT_EQ(event.parameters.private_length, 148);
  EXPECT_EQ(std::memcmp(event.parameters.private_data, "nope\0", 5), 0);
}

TEST(Cm, DatagramServiceAnswers) {
  CmClient active;
  CmClient passive;
  const uint16_t port = passive.listen(1, cm_address("::"), 0, CmPortSpace::kUdp);
  EXPECT_EQ(active.create(2, CmPortSpace::kUdp), 0);
  EXPECT_EQ(active.connect(2, kHere, here(port), 0x11), 0);
  const auto request = passive.event();
  EXPECT_EQ(request.event, CmEventKind::kConnectRequest);
  EXPECT_EQ(passive.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x20022, .qkey = 0x1234}}),
            0);
  const auto event = active.event();
  EXPECT_EQ(event.event, CmEventKind::kEstablished);
  EXPECT_EQ(event.parameters.qpn, 0x20022u);
  EXPECT_EQ(event.parameters.qkey, 0x1234u);
}

TEST(Cm, ClosedConnectionEndsWhatItHad) {
  CmClient active;
  std::optional<CmClient> passive(std::in_place);
  establish(active, *passive);
  const uint16_t port = passive->listen(3, kHere);
  EXPECT_EQ(active.create(4), 0);
  EXPECT_EQ(active.connect(4, kHere, here(port), 0x12), 0);
  EXPECT_EQ(passive->event().event, CmEventKind::kConnectRequest);
  passive->die();
  for (int i = 0; i < 2; ++i) {
    const auto event = active.event();
    EXPECT_EQ(event.event, event.id == 2 ? CmEventKind::kDisconnected : CmEventKind::kRejected) << event.id;
  }
  EXPECT_EQ(active.code(ipc::CmDestroy{.id = 4}), 0);
  EXPECT_EQ(active.create(5), 0);
  EXPECT_EQ(active.bind(5, here(port)), port) << "the port is free again";
}

TEST(Cm, KilledProcessIsDisconnected) {
  CmClient passive;
  const uint16_t port = passive.listen(1, kHere);
  const pid_t child = ::fork();
  if (child == 0) {
    CmClient active;
    active.create(2);
    active.connect(2, kHere, here(port), 0x010011);
    if (active.event().event == CmEventKind::kConnectResponse) active.code(ipc::CmEstablish{.id = 2});
    ::pause();
    ::_exit(1);
  }
  const auto request = passive.event();
  EXPECT_EQ(request.event, CmEventKind::kConnectRequest);
  EXPECT_EQ(passive.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x020022}}), 0);
  EXPECT_EQ(passive.event().event, CmEventKind::kEstablished);
  ::kill(child, SIGKILL);
  EXPECT_EQ(passive.event().event, CmEventKind::kDisconnected);
  ::waitpid(child, nullptr, 0);
}

TEST(Cm, ConnectionsOutliveTheAgent) {
  CmClient active;
  CmClient passive;
  const uint16_t port = passive.listen(1, kHere);
  EXPECT_EQ(active.create(2), 0);
  EXPECT_EQ(active.connect(2, kHere, here(port), 0x010011), 0);
  const auto request = passive.event();
  EXPECT_EQ(passive.code(ipc::CmAccept{.id = request.child, .parameters = {.qpn = 0x020022}}), 0);
  const auto response = active.event();
  EXPECT_EQ(active.code(ipc::CmEstablish{.id = 2}), 0);
  EXPECT_EQ(passive.event().event, CmEventKind::kEstablished);

  const auto agent = support::agent_pid();
  ASSERT_TRUE(agent);
  ::kill(*agent, SIGKILL);
  active.reopen();
  passive.reopen();
  ASSERT_NE(support::agent_pid(), agent);
  ipc::CmResume resume{.id = 2,
                       .channel = 1,
                       .space = CmPortSpace::kTcp,
                       .local_comm_id = response.local_comm_id,
                       .remote_comm_id = response.remote_comm_id,
                       .local_qpn = 0x010011,
                       .remote_qpn = 0x020022,
                       .local = response.local,
                       .remote = response.remote};
  EXPECT_EQ(active.code(resume), 0);
  EXPECT_EQ(active.code(ipc::CmDisconnect{.id = 2}), 0);
  EXPECT_EQ(active.event().event, CmEventKind::kDisconnected) << "nobody knows the other end yet";
  std::swap(resume.local_comm_id, resume.remote_comm_id);
  std::swap(resume.local_qpn, resume.remote_qpn);
  std::swap(resume.local, resume.remote);
  resume.id = request.child;
  EXPECT_EQ(passive.code(resume), 0);
  const auto gone = passive.event();
  EXPECT_EQ(gone.event, CmEventKind::kDisconnected) << "but it hears of it when it comes back";
  EXPECT_EQ(gone.id, request.child);
  EXPECT_EQ(passive.listen(1, here(port)), port);
}

TEST(Cm, PortsAreTakenByTheRules) {
  CmClient client;
  const uint16_t port = client.listen(1, cm_address("0.0.0.0"));
  EXPECT_GE(port, 32768);
  EXPECT_EQ(client.create(2), 0);
  EXPECT_EQ(client.bind(2, here(port)), -EADDRINUSE);
  EXPECT_EQ(client.bind(2, cm_address("192.0.2.7")), -EADDRNOTAVAIL);
  EXPECT_EQ(client.bind(2, cm_address("::1", port)), port) << "another family's address";
  EXPECT_EQ(client.code(ipc::CmListen{.id = 3}), EINVAL);
  EXPECT_EQ(client.create(3), 0);
  EXPECT_EQ(client.code(ipc::CmListen{.id = 3}), EINVAL) << "not bound";
}

TEST(Cm, OneWhoNeverReadsIsCutOff) {
  CmClient active;
  CmClient lazy;
  const uint16_t port = lazy.listen(1, kHere, 1'000'000);
  // Requests that are given up make two events each: the request, and that it is gone.
  bool cut = false;
  for (uint32_t id = 2; id < 20'000 && !cut; ++id) {
    ASSERT_EQ(active.create(id), 0);
    ASSERT_EQ(active.connect(id, kHere, here(port), 0), 0);
    ASSERT_EQ(active.code(ipc::CmDestroy{.id = id}), 0);
    pollfd state{lazy.socket(), 0, 0};
    cut = ::poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0;
  }
  EXPECT_TRUE(cut);
  EXPECT_EQ(active.create(1), 0);
  EXPECT_EQ(active.bind(1, here(port)), port) << "others are served as before";
}

TEST(Cm, EventsThatWaitedComeInOrder) {
  CmClient active;
  CmClient slow;
  const uint16_t port = slow.listen(1, kHere);
  constexpr uint32_t kCount = 900;  // more than a socket holds
  for (uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(active.create(2 + i), 0);
    ASSERT_EQ(active.connect(2 + i, kHere, here(port), 0x100 + i), 0);
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    const auto event = slow.event();
    ASSERT_EQ(event.event, CmEventKind::kConnectRequest) << i;
    ASSERT_EQ(event.parameters.qpn, 0x100 + i);
  }
}

TEST(Cm, BadInputClosesThatClientOnly) {
  CmClient good;
  EXPECT_EQ(good.create(1), 0);
  {
    CmClient bad;
    EXPECT_EQ(bad.code(ipc::CmOpen{}), EPROTO);
    EXPECT_FALSE(bad.ask(ipc::CmCreate{.id = 1, .channel = 1, .space = CmPortSpace::kTcp}));
  }
  {
    CmClient bad;
    EXPECT_EQ(bad.code(ipc::CmChannel{.channel = 2}), EPROTO) << "no descriptor";
  }
  {
    CmClient bad;
    EXPECT_EQ(bad.code(ipc::CmChannel{.channel = 2}, STDIN_FILENO), EINVAL) << "no socket";
    EXPECT_EQ(bad.code(ipc::CmCreate{.id = 1, .channel = 7, .space = CmPortSpace::kTcp}), EINVAL);
    EXPECT_EQ(bad.code(ipc::CmCreate{.id = 1, .channel = 1, .space = CmPortSpace{77}}), EPROTONOSUPPORT);
    EXPECT_EQ(bad.code(ipc::CmAccept{.id = 5}), EINVAL);
    EXPECT_EQ(bad.create(ipc::kFirstChild + 1), EINVAL);
    const int fd = STDIN_FILENO;
    EXPECT_EQ(bad.code(ipc::CmDestroy{.id = 1}, fd), EPROTO) << "a descriptor";
  }
  EXPECT_EQ(good.code(ipc::CmDestroy{.id = 1}), 0);
}

}  // namespace
}  // namespace verbena::agent
