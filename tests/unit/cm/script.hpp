// A manager at 10.0.0.1 whose peer, at 10.0.0.2, the test plays itself: "in this state, receive this, expect
// exactly these, nothing more".
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "addresses.hpp"
#include "cm/codec.hpp"
#include "cm/manager.hpp"

namespace verbena::cm {

constexpr Client kClient = 1;
constexpr uint32_t kChannel = 9;
constexpr uint16_t kPort = 7471;
constexpr uint32_t kTheirs = 0x7777;  // the peer's communication ID
constexpr uint32_t kTheirQpn = 0x0200aa;
constexpr uint32_t kOurQpn = 0x0100bb;
constexpr uint64_t kTheirGuid = 0x1122334455667788;

class Script : public testing::Test {
 protected:
  using Kind = ipc::CmEventKind;

  // What came out must have been looked at.
  void TearDown() override { expect_nothing(); }

  template <typename Body>
  void receive(const Body& body) {
    manager.on_mad(now, way, emit({77, body}));
    collect();
  }
  void advance(base::Duration duration) {
    const auto end = now + duration;
    while (const auto due = manager.next_deadline()) {
      if (*due > end) break;
      now = std::max(now, *due);
      manager.on_timer(now);
      collect();
    }
    now = end;
    manager.on_timer(now);
    collect();
  }
  void collect() {
    for (auto& outgoing : manager.take_mads()) {
      EXPECT_EQ(outgoing.way.remote, way.remote);
      EXPECT_EQ(outgoing.way.local, way.local);
      const auto message = parse(outgoing.mad);
      ASSERT_TRUE(message);
      EXPECT_NE(message->transaction, 0u);
      sent.push_back(message->body);
    }
    for (auto& notice : manager.take_notices()) {
      EXPECT_EQ(notice.client, kClient);
      EXPECT_EQ(notice.channel, kChannel);
      events.push_back(notice.event);
    }
  }

  // The next MAD that was sent, which is an M.
  template <typename M>
  M sends() {
    collect();
    if (sent.empty() || !std::holds_alternative<M>(sent.front())) {
      ADD_FAILURE() << "not sent, but number "
                    << (sent.empty() ? -1 : static_cast<int>(sent.front().index()));
      return {};
    }
    const M body = std::get<M>(sent.front());
    sent.pop_front();
    return body;
  }
  // The next event, which is of that kind.
  ipc::CmEvent tells(Kind kind) {
    collect();
    if (events.empty()) {
      ADD_FAILURE() << "no event";
      return {};
    }
    const auto event = events.front();
    events.pop_front();
    EXPECT_EQ(event.event, kind);
    return event;
  }
  void expect_nothing() {
    collect();
    EXPECT_TRUE(sent.empty()) << sent.size() << " MADs more";
    EXPECT_TRUE(events.empty()) << events.size() << " events more";
  }

  void create(uint32_t id, ipc::CmPortSpace space = ipc::CmPortSpace::kTcp) {
    ASSERT_TRUE(manager.create(kClient, {.id = id, .channel = kChannel, .space = space}));
  }
  // Id 1 listens.
  void listen(int backlog = 0, ipc::CmPortSpace space = ipc::CmPortSpace::kTcp) {
    create(1, space);
    ASSERT_TRUE(manager.bind(kClient, {.id = 1, .address = address("0.0.0.0", kPort)}, false));
    ASSERT_TRUE(manager.listen(kClient, {.id = 1, .backlog = backlog}));
  }
  // Id 2 asks; the number it goes by.
  Req connect() {
    create(2);
    const auto done = manager.connect(now, kClient, command());
    EXPECT_TRUE(done) << done.error().sentence;
    return sends<Req>();
  }
  static ipc::CmConnect command() {
    return {.id = 2,
            .local = address("10.0.0.1"),
            .remote = address("10.0.0.2", kPort),
            .parameters = {.qpn = kOurQpn, .ack_timeout = 18}};
  }
  // The peer's REQ to our listener.
  static Req request(uint32_t theirs = kTheirs, uint32_t qpn = kTheirQpn) {
    Req req{.local_id = theirs,
            .service_id = service_id(ipc::CmPortSpace::kTcp, kPort),
            .ca_guid = kTheirGuid,
            .qpn = qpn,
            .primary = {},
            .alternate = {},
            .private_data = {}};
    emit_ip_header({address("10.0.0.2", 5555), address("10.0.0.1", kPort)},
                   std::span(req.private_data).first<kIpHeaderBytes>());
    return req;
  }
  // It was received, announced and acknowledged; our id for it.
  uint32_t requested(const Req& req = request()) {
    receive(req);
    const auto event = tells(Kind::kConnectRequest);
    const auto mra = sends<Mra>();
    EXPECT_EQ(mra.remote_id, req.local_id);
    ours = mra.local_id;
    return event.child;
  }
  // The passive side's, established; our id for it.
  uint32_t accepted() {
    const uint32_t id = requested();
    EXPECT_TRUE(manager.accept(now, kClient, {.id = id, .parameters = {.qpn = kOurQpn}}));
    EXPECT_EQ(sends<Rep>().local_id, ours);
    return id;
  }
  uint32_t established_by_peer() {
    listen();
    const uint32_t id = accepted();
    receive(Rtu{.local_id = kTheirs, .remote_id = ours, .private_data = {}});
    tells(Kind::kEstablished);
    return id;
  }
  Rep reply() const {
    return {
        .local_id = kTheirs, .remote_id = ours, .qpn = kTheirQpn, .ca_guid = kTheirGuid, .private_data = {}};
  }
  // Id 2, established by us.
  void established_by_us() {
    ours = connect().local_id;
    receive(reply());
    tells(Kind::kConnectResponse);
    EXPECT_TRUE(manager.establish(kClient, {.id = 2}));
    EXPECT_EQ(sends<Rtu>().remote_id, kTheirs);
  }
  Dreq their_dreq() const {
    return {.local_id = kTheirs, .remote_id = ours, .remote_qpn = kOurQpn, .private_data = {}};
  }
  Drep their_drep() const { return {.local_id = kTheirs, .remote_id = ours, .private_data = {}}; }
  Rej their_rej(uint16_t reason, About about = About::kReq) const {
    return {.local_id = kTheirs,
            .remote_id = ours,
            .about = about,
            .reason = reason,
            .info = {},
            .private_data = {}};
  }
  void destroy(uint32_t id) { ASSERT_TRUE(manager.destroy(now, kClient, {.id = id})); }
  // Nothing is left once all is waited for.
  void expect_no_trace() {
    manager.end_client(now, kClient);
    collect();
    sent.clear();
    advance(base::seconds(60));
    sent.clear();
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(manager.ids(), 0u);
    EXPECT_EQ(manager.connections(), 0u);
    EXPECT_FALSE(manager.next_deadline());
    EXPECT_FALSE(manager.in_use());
  }

  std::mt19937_64 random{4791};
  base::Instant now{1'000'000'000};
  Way way{.local = gid_of(address("10.0.0.1")), .remote = gid_of(address("10.0.0.2"))};
  Manager manager{{},
                  {.random = [this] { return random(); },
                   .is_local =
                       [this](const ipc::CmAddress& a) {
                         return gid_of(a) == way.local || (peer_is_here && gid_of(a) == way.remote);
                       }}};
  uint32_t ours = 0;  // our communication ID
  bool peer_is_here = false;
  std::deque<decltype(Message::body)> sent;
  std::deque<ipc::CmEvent> events;
};

}  // namespace verbena::cm
