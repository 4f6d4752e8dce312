// A reliable connection between its queue pair and the port, on a link that a test holds: what leaves when,
// and in which order.
#include "wire/rc_connection.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "../verbs/responder_script.hpp"
#include "engine/credits.hpp"
#include "roce/codec.hpp"
#include "roce/icrc.hpp"

namespace verbena::wire {
namespace {

using Driver = verbs::Wire::Driver;

constexpr base::Qpn kPeer = base::Qpn::make(verbs::kRequesterSlot, 100);
constexpr uint16_t kPeersPort = 0xc123;
constexpr base::Instant kNow{1'000'000'000};

net::Route route_to_peer(bool recognised) {
  net::Route route{.slot = kPeer.slot(), .recognised = recognised};
  route.from.bytes[15] = 1;
  route.to.bytes[15] = 2;
  return route;
}

// Hands over what the test gives; keeps what is sent, a run as "send ack", "write" or the like.
struct ScriptedLink final : net::Link {
  bool send(const net::Run& run) override {
    std::string text;
    for (size_t i = 0; i < run.packets(); ++i) {
      const auto packet = roce::parse(run.packet(i).first(run.packet(i).size() - roce::kIcrcBytes));
      const bool ack = packet && roce::is_acknowledgement(packet->bth.opcode());
      if (ack) credits = engine::credits_of(packet->aeth.syndrome);
      text += (i > 0 ? " " : "") + (ack ? "ack " + std::to_string(packet->bth.psn.value) : "send");
    }
    sent.push_back(text);
    return true;
  }
  uint16_t source_port(const net::Route&) override { return 0xc000; }
  size_t receive(net::Sink& sink, size_t budget) override {
    if (endless) waiting.resize(budget);
    auto handed = std::exchange(waiting, {});
    if (handed.size() > budget) {
      waiting.assign(handed.begin() + static_cast<ptrdiff_t>(budget), handed.end());
      handed.resize(budget);
    }
    for (const auto& bytes : handed)
      sink.on_packet({.from = route_to_peer(true).to,
                      .to = route_to_peer(true).from,
                      .source_port = kPeersPort,
                      .bytes = bytes});
    if (!handed.empty() && after_packets) std::exchange(after_packets, {})();
    return handed.size();
  }
  [[nodiscard]] int fd() const override { return -1; }

  std::vector<std::vector<std::byte>> waiting;
  bool endless = false;  // more is always there, of no use to anybody
  std::vector<std::string> sent;
  uint32_t credits = 0;                 // that the last acknowledgement told
  std::function<void()> after_packets;  // once, while the port still takes packets in
};

class WirePaths final : public verbs::PathMaker {
 public:
  WirePaths(std::shared_ptr<Port> port, verbs::OwnerProcess& owner, bool recognised)
      : port_(std::move(port)), owner_(owner), recognised_(recognised) {}
  [[nodiscard]] base::Result<verbs::PathPlan> plan(const verbs::PathWish& wish) override {
    Peering peering{.own = wish.own,
                    .target = kPeer,
                    .route = route_to_peer(recognised_),
                    .first_expected = {wish.attributes.rq_psn},
                    .domain = wish.domain};
    std::memcpy(peering.peer_gid, wish.attributes.ah_attr.grh.dgid.raw, sizeof peering.peer_gid);
    verbs::PathPlan plan;
    plan.path =
        std::make_unique<RcConnection>(port_, owner_.process(), owner_.seen_from(verbs::kOwnerSlot), peering);
    plan.peer_known = true;
    plan.peer_slot = verbs::kOwnerSlot;
    plan.peer_epoch = 1;
    plan.pipelined = true;
    return plan;
  }
  [[nodiscard]] std::vector<verbs::PortFacts> ports() override {
    verbs::PortFacts facts;
    facts.gids[0] = true;
    facts.active_mtu = IBV_MTU_4096;
    return {facts};
  }

 private:
  std::shared_ptr<Port> port_;
  verbs::OwnerProcess& owner_;
  bool recognised_;
};

class RcConnectionTest : public testing::Test {
 protected:
  RcConnectionTest() { connect(true); }
  ~RcConnectionTest() override { qp_->destroy(); }

  void connect(bool recognised) {
    if (qp_) qp_->destroy();
    qp_ = *verbs::QueuePair::create(
        owner_.process(),
        {.domain = owner_.domain(),
         .send_cq = cq_,
         .recv_cq = cq_,
         .caps = {.max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
         .signal_all = true,
         .paths = std::make_shared<WirePaths>(port_, owner_, recognised)});
    owner_.connect(*qp_, setup_);
    post_receives(8);
    next_psn_ = verbs::OwnerProcess::identity(setup_).first_psn;
  }

  void post_receives(int count) {
    for (int i = 0; i < count; ++i) {
      ibv_recv_wr receive{};
      ASSERT_EQ(0, qp_->post_recv(&receive, nullptr));
    }
  }
  // An empty SEND of the peer's comes; `after` happens while the port still takes packets in.
  void peer_sends(std::function<void()> after = {}) {
    roce::Packet packet;
    packet.bth.psn = {next_psn_++};
    packet.bth.ack_request = true;
    comes(packet);
    link_->after_packets = std::move(after);
  }
  // The peer's word that all has come, up to our request with that number.
  void peer_acknowledges(uint32_t psn) {
    roce::Packet packet;
    packet.bth.operation = roce::Operation::kAcknowledge;
    packet.bth.psn = {psn};
    packet.aeth = {roce::syndrome::kAck, 0};
    comes(packet);
  }
  void comes(roce::Packet packet) {
    packet.bth.destination = qp_->number();
    std::vector<std::byte> bytes(64);
    bytes.resize(roce::emit(packet, bytes) + roce::kIcrcBytes);
    const net::Route route = route_to_peer(true);
    roce::append_icrc({.source = route.to.bytes, .destination = route.from.bytes, .source_port = kPeersPort},
                      0, bytes);
    link_->waiting.push_back(bytes);
  }
  void post(uint32_t length = 8) {
    ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()), length, key_};
    ibv_send_wr request{
        .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    EXPECT_EQ(0, qp_->post_send(&request, nullptr));
  }
  void drive(Driver driver) { (void)port_->drive(kNow, driver); }
  // Long after the last post, as requesters see it.
  void drive_late() { (void)port_->drive(base::now() + base::milliseconds(50), Driver::kPoller); }
  // Since the last call.
  [[nodiscard]] std::vector<std::string> sent() { return std::exchange(link_->sent, {}); }
  [[nodiscard]] std::string ack() const { return "ack " + std::to_string(next_psn_ - 1); }

  using Runs = std::vector<std::string>;

  verbs::OwnerProcess owner_;
  verbs::QpSetup setup_{.peer_index = 100};
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  uint32_t key_ = owner_.register_memory(memory_, IBV_ACCESS_LOCAL_WRITE);
  std::shared_ptr<verbs::CompletionQueue> cq_ = owner_.make_cq(1000);
  ScriptedLink* link_ = new ScriptedLink;  // the port's
  std::shared_ptr<Port> port_ = std::make_shared<Port>(std::unique_ptr<net::Link>(link_), verbs::kOwnerSlot,
                                                       Port::Environment{.wake = [] {}});
  std::shared_ptr<verbs::QueuePair> qp_;
  uint32_t next_psn_ = 0;
};

TEST_F(RcConnectionTest, TheHelperAcknowledgesAtOnce) {
  peer_sends();
  drive(Driver::kHelper);
  EXPECT_EQ((Runs{ack()}), sent());
}

TEST_F(RcConnectionTest, TheNextPostTakesTheAcknowledgementAlong) {
  peer_sends();
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{}), sent());
  post();
  EXPECT_EQ((Runs{"send " + ack()}), sent());
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{}), sent()) << "it has left";
}

// A program that is there now and then answers soon; if it doesn't, the helper comes again.
TEST_F(RcConnectionTest, AHelperThatStandsInLeavesItToThePost) {
  peer_sends();
  drive(Driver::kStandIn);
  EXPECT_EQ((Runs{}), sent());
  post();
  EXPECT_EQ((Runs{"send " + ack()}), sent());
  peer_sends();
  drive(Driver::kStandIn);
  drive(Driver::kHelper);
  EXPECT_EQ((Runs{ack()}), sent());
}

// Else each would have to wait until the helper comes again.
TEST_F(RcConnectionTest, AHelperLearnsThatNoPostFollows) {
  const auto put_off = [&] {
    peer_sends();
    drive(Driver::kStandIn);
    ibv_wc received;
    EXPECT_EQ(1, cq_->poll(1, &received));
    post_receives(1);
    const bool waits = sent().empty();
    EXPECT_EQ(waits, port_->owing_since().ns != INT64_MAX);
    return waits;
  };
  EXPECT_TRUE(put_off());
  drive(Driver::kHelper);
  EXPECT_EQ((Runs{ack()}), sent());
  EXPECT_EQ(INT64_MAX, port_->owing_since().ns);
  unsigned at_once = 0;
  while (!put_off()) ++at_once;
  EXPECT_EQ(16u, at_once);
  post();  // this time one does
  EXPECT_EQ((Runs{"send " + ack()}), sent());
  EXPECT_TRUE(put_off());
}

TEST_F(RcConnectionTest, NothingIsPutOffWhenTheProgramEnds) {
  port_->acknowledge_all();
  peer_sends();
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{ack()}), sent());
}

// The peer may wait for them.
TEST_F(RcConnectionTest, AnAcknowledgementThatWasPutOffTellsOfReceivesPostedSince) {
  peer_sends();
  drive(Driver::kPoller);
  post_receives(5);
  post();
  EXPECT_EQ((Runs{"send " + ack()}), sent());
  EXPECT_EQ(12u, link_->credits);
}

TEST_F(RcConnectionTest, TheNextPollSendsWhatNoPostTook) {
  peer_sends();
  drive(Driver::kPoller);
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{ack()}), sent());
  post();
  EXPECT_EQ((Runs{"send"}), sent());
}

// Two turns in a row would put it off for ever.
TEST_F(RcConnectionTest, ItIsPutOffOnce) {
  peer_sends();
  drive(Driver::kPoller);
  peer_sends();
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{ack()}), sent()) << "one for both";
}

TEST_F(RcConnectionTest, OneThatWasTakenAlongDoesntKeepTheNextFromBeingPutOff) {
  for (int i = 0; i < 3; ++i) {
    peer_sends();
    drive(Driver::kPoller);
    EXPECT_EQ((Runs{}), sent());
    post();
    EXPECT_EQ((Runs{"send " + ack()}), sent());
  }
}

// Another thread has seen what came and answers, while the one that drives isn't done: the answer would
// overtake the acknowledgement. So it is left to that thread.
TEST_F(RcConnectionTest, APostWhilePacketsAreTakenInIsLeftToTheDriver) {
  for (const Driver driver : {Driver::kPoller, Driver::kHelper}) {
    bool posted = false;
    peer_sends([&] {
      post();
      posted = true;
      EXPECT_EQ((Runs{}), sent());
    });
    drive(driver);
    EXPECT_TRUE(posted);
    EXPECT_EQ((Runs{"send " + ack()}), sent());
    drive(driver);
    EXPECT_EQ((Runs{}), sent());
  }
}

// A stray is taken in outside of any turn; the next one goes on with it.
TEST_F(RcConnectionTest, APostAfterAStrayIsSentByTheNextDriver) {
  peer_sends();
  const auto bytes = std::exchange(link_->waiting, {}).front();
  port_->take_stray(kNow, {.from = route_to_peer(true).to,
                           .to = route_to_peer(true).from,
                           .source_port = kPeersPort,
                           .bytes = bytes});
  post();
  EXPECT_EQ((Runs{}), sent());
  drive(Driver::kPoller);
  EXPECT_EQ((Runs{"send " + ack()}), sent());
}

TEST_F(RcConnectionTest, TheAcknowledgementLeavesFirstWhereItCantRide) {
  peer_sends();
  drive(Driver::kPoller);
  post(0);
  EXPECT_EQ((Runs{ack(), "send"}), sent());
  peer_sends();
  drive(Driver::kPoller);
  post(3000);
  EXPECT_EQ((Runs{ack(), "send send send"}), sent());
}

TEST_F(RcConnectionTest, AForeignPeerGetsTheAcknowledgementFirst) {
  connect(false);
  peer_sends();
  drive(Driver::kPoller);
  (void)sent();  // it is asked whether it is Verbena
  post();
  EXPECT_EQ((Runs{ack(), "send"}), sent());
}

TEST_F(RcConnectionTest, ADestroyedQueuePairStillAcknowledges) {
  peer_sends();
  drive(Driver::kPoller);
  const std::string expected = ack();
  connect(true);
  EXPECT_EQ((Runs{expected}), sent());
}

TEST_F(RcConnectionTest, WhatIsntAcknowledgedInTimeIsSentAgain) {
  post();
  EXPECT_EQ((Runs{"send"}), sent());
  drive_late();
  EXPECT_EQ((Runs{"send"}), sent());
}

// A program that posted for long has as much to read as a thousand queue pairs were answered.
TEST_F(RcConnectionTest, ATimerWaitsUntilWhatHasComeIsRead) {
  post();
  EXPECT_EQ((Runs{"send"}), sent());
  link_->waiting.resize(1000);
  peer_acknowledges(0);
  for (int turn = 0; turn < 5; ++turn) drive_late();
  EXPECT_EQ((Runs{}), sent());
  ibv_wc completion{};
  EXPECT_EQ(1, cq_->poll(1, &completion));
  EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
}

TEST_F(RcConnectionTest, WhoSendsWithoutEndDoesntStopTimers) {
  post();
  EXPECT_EQ((Runs{"send"}), sent());
  link_->endless = true;
  int turns = 0;
  while (turns < 100 && link_->sent.empty()) {
    drive_late();
    ++turns;
  }
  EXPECT_EQ((Runs{"send"}), sent());
  EXPECT_LE(2, turns);
  EXPECT_GE(20, turns);
}

// As long as it has enough to do, the peer waits for none of these.
TEST_F(RcConnectionTest, TheMoreIsUnderWayTheMoreLeavesTogether) {
  const auto first_run = [&](int64_t others, size_t posts) {
    port_->add_under_way(others);
    for (size_t i = 0; i < posts; ++i) post();
    port_->add_under_way(-others);
    const Runs runs = sent();
    return runs.empty() ? 0 : 1 + std::ranges::count(runs.front(), ' ');
  };
  EXPECT_EQ(1, first_run(0, 1));
  EXPECT_EQ(32, first_run(50, 32));
  connect(true);
  EXPECT_EQ(0, first_run(1000, 40));
  drive(Driver::kPoller);
  const Runs runs = sent();
  ASSERT_EQ(1u, runs.size());
  EXPECT_EQ(39, std::ranges::count(runs.front(), ' '));
}

}  // namespace
}  // namespace verbena::wire
