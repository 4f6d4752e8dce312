// The end of a connection, asked for by either end or both, and what is lost on the way.
#include "script.hpp"

namespace verbena::cm {
namespace {

using Disconnecting = Script;

TEST_F(Disconnecting, ByUs) {
  established_by_us();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = 2}));
  const auto dreq = sends<Dreq>();
  EXPECT_EQ(dreq.local_id, ours);
  EXPECT_EQ(dreq.remote_id, kTheirs);
  EXPECT_EQ(dreq.remote_qpn, kTheirQpn);
  advance(base::milliseconds(600));
  EXPECT_EQ(sends<Dreq>(), dreq);
  receive(their_drep());
  tells(Kind::kDisconnected);
  receive(their_drep());
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = 2})) << "both ends may ask";
  expect_nothing();
  advance(base::seconds(5));
  EXPECT_EQ(tells(Kind::kTimewaitExit).id, 2u);
  EXPECT_FALSE(manager.disconnect(now, kClient, {.id = 2}));
  expect_no_trace();
}

TEST_F(Disconnecting, ByThePeer) {
  const uint32_t id = established_by_peer();
  receive(their_dreq());
  EXPECT_EQ(tells(Kind::kDisconnected).id, id);
  expect_nothing();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = id}));
  sends<Drep>();
  receive(their_dreq());  // the DREP was lost
  sends<Drep>();
  advance(base::seconds(5));
  tells(Kind::kTimewaitExit);
  receive(their_dreq());
  EXPECT_EQ(sends<Drep>().remote_id, kTheirs) << "we know nothing of it any more, and say so";
}

TEST_F(Disconnecting, PeerNeedNotWaitForASlowProgram) {
  established_by_peer();
  receive(their_dreq());
  tells(Kind::kDisconnected);
  receive(their_dreq());
  sends<Drep>();
}

TEST_F(Disconnecting, BothAtOnce) {
  established_by_us();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = 2}));
  sends<Dreq>();
  receive(their_dreq());
  sends<Drep>();
  tells(Kind::kDisconnected);
  receive(their_drep());
  receive(their_dreq());
  sends<Drep>();
}

TEST_F(Disconnecting, FromAPeerThatIsGone) {
  established_by_us();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = 2}));
  advance(base::milliseconds(8'100));
  for (int i = 0; i < 16; ++i) sends<Dreq>();
  tells(Kind::kDisconnected);
  advance(base::seconds(5));
  tells(Kind::kTimewaitExit);
}

TEST_F(Disconnecting, OfAnotherConnectionIsNotOurs) {
  established_by_us();
  auto dreq = their_dreq();
  dreq.remote_qpn ^= 1;
  receive(dreq);
  expect_nothing();
  dreq = their_dreq();
  dreq.local_id ^= 1;
  receive(dreq);
  EXPECT_EQ(sends<Drep>().remote_id, dreq.local_id);
}

TEST_F(Disconnecting, BeforeReadyCameThePeerWasReady) {
  listen();
  accepted();
  receive(their_dreq());  // the RTU was lost
  tells(Kind::kEstablished);
  tells(Kind::kDisconnected);
  advance(base::seconds(10));
  expect_nothing();
}

TEST_F(Disconnecting, NothingThatIsNot) {
  create(2);
  EXPECT_EQ(manager.disconnect(now, kClient, {.id = 2}).error().code, EINVAL);
  EXPECT_EQ(manager.disconnect(now, kClient, {.id = 3}).error().code, EINVAL);
  destroy(2);
  connect();
  EXPECT_EQ(manager.disconnect(now, kClient, {.id = 2}).error().code, EINVAL);
}

TEST_F(Disconnecting, TimewaitIsAsLongAsThePathAsks) {
  create(2);
  auto quick = command();
  quick.parameters.ack_timeout = 14;  // 67 ms
  ASSERT_TRUE(manager.connect(now, kClient, quick));
  ours = sends<Req>().local_id;
  receive(reply());
  tells(Kind::kConnectResponse);
  ASSERT_TRUE(manager.establish(kClient, {.id = 2}));
  sends<Rtu>();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = 2}));
  sends<Dreq>();
  receive(their_drep());
  tells(Kind::kDisconnected);
  advance(base::milliseconds(130));
  expect_nothing();
  advance(base::milliseconds(10));
  tells(Kind::kTimewaitExit);
}

TEST_F(Disconnecting, StaleConnectionMakesRoom) {
  const uint32_t id = established_by_peer();
  receive(request(kTheirs + 1));  // the same queue pair asks anew
  EXPECT_EQ(sends<Dreq>().remote_id, kTheirs);
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kStaleConnection);
  receive(their_drep());
  EXPECT_EQ(tells(Kind::kDisconnected).id, id);
  requested(request(kTheirs + 2));
  advance(base::seconds(5));
  tells(Kind::kTimewaitExit);
}

class TakenOver : public Script {
 protected:
  static constexpr uint32_t kId = ipc::kFirstChild + 5;
  void resume() {
    ours = 0x4444;
    ASSERT_TRUE(manager.resume(now, kClient,
                               {.id = kId,
                                .channel = kChannel,
                                .space = ipc::CmPortSpace::kTcp,
                                .local_comm_id = 0x4444,
                                .remote_comm_id = kTheirs,
                                .local_qpn = kOurQpn,
                                .remote_qpn = kTheirQpn,
                                .local = address("10.0.0.1", kPort),
                                .remote = address("10.0.0.2", 5555)}));
  }
};

TEST_F(TakenOver, IsDisconnectedByEitherEnd) {
  resume();
  advance(base::seconds(100));
  expect_nothing();
  receive(their_dreq());
  EXPECT_EQ(tells(Kind::kDisconnected).id, kId);
  destroy(kId);
  EXPECT_EQ(sends<Drep>().local_id, 0x4444u);
  advance(base::seconds(5));
  resume();
  ASSERT_TRUE(manager.disconnect(now, kClient, {.id = kId}));
  EXPECT_EQ(sends<Dreq>().remote_qpn, kTheirQpn);
  receive(their_drep());
  tells(Kind::kDisconnected);
}

TEST_F(TakenOver, HearsOfADisconnectThatCameBefore) {
  ours = 0x4444;
  receive(their_dreq());
  sends<Drep>();
  resume();
  tells(Kind::kDisconnected);
}

TEST_F(TakenOver, ByAPeerOnThisHostThatDoesNotComeBack) {
  peer_is_here = true;
  resume();
  advance(base::seconds(29));
  expect_nothing();
  advance(base::milliseconds(1'200));
  sends<Dreq>();
  receive(their_drep());
  tells(Kind::kDisconnected);
}

TEST_F(TakenOver, NumbersOnce) {
  resume();
  EXPECT_EQ(manager.resume(now, kClient, {.id = 3, .space = ipc::CmPortSpace::kTcp, .local_comm_id = 0x4444})
                .error()
                .code,
            EEXIST);
  EXPECT_EQ(manager.resume(now, kClient, {.id = kId, .space = ipc::CmPortSpace::kTcp}).error().code, EEXIST);
}

}  // namespace
}  // namespace verbena::cm
