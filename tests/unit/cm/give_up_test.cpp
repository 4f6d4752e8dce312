// An id is destroyed, or its process dies, in every state: the other end gets to know.
#include "script.hpp"

namespace verbena::cm {
namespace {

using GivingUp = Script;

TEST_F(GivingUp, ARequestUnderWay) {
  ours = connect().local_id;
  destroy(2);
  const auto rej = sends<Rej>();
  EXPECT_EQ(rej.reason, reject_reason::kTimeout);
  EXPECT_EQ(rej.local_id, ours);
  EXPECT_EQ(rej.info_length, 8) << "the GUID, by which the other finds it";
  receive(reply());  // the REJ came too late, or not at all
  const auto again = sends<Rej>();
  EXPECT_EQ(again.remote_id, kTheirs);
  EXPECT_EQ(again.about, About::kRep);
  expect_no_trace();
}

TEST_F(GivingUp, AReplyThatCame) {
  ours = connect().local_id;
  receive(reply());
  tells(Kind::kConnectResponse);
  destroy(2);
  EXPECT_EQ(sends<Rej>().about, About::kRep);
  EXPECT_EQ(sends<Dreq>().remote_qpn, kTheirQpn);
  receive(their_drep());
  expect_no_trace();
}

TEST_F(GivingUp, AnUnansweredRequest) {
  listen();
  destroy(requested());
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kConsumerDefined);
  expect_no_trace();
}

TEST_F(GivingUp, AReplyThatWasSent) {
  listen();
  destroy(accepted());
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kConsumerDefined);
  sends<Dreq>();
  receive(Rtu{.local_id = kTheirs, .remote_id = ours, .private_data = {}});
  advance(base::milliseconds(600));
  sends<Dreq>();
  receive(their_drep());
  expect_no_trace();
}

TEST_F(GivingUp, AConnection) {
  established_by_us();
  destroy(2);
  sends<Dreq>();
  EXPECT_TRUE(manager.in_use()) << "until the other end knows";
  advance(base::milliseconds(600));
  sends<Dreq>();
  receive(their_drep());
  EXPECT_FALSE(manager.in_use());
  expect_no_trace();
}

TEST_F(GivingUp, OneThatIsBeingDisconnected) {
  const uint32_t id = established_by_peer();
  receive(their_dreq());
  tells(Kind::kDisconnected);
  destroy(id);
  sends<Drep>();
  expect_no_trace();
}

TEST_F(GivingUp, AListenerWithRequestsNobodyHasSeen) {
  listen();
  const uint32_t seen = requested(request(1, 0x11));
  requested(request(2, 0x12));
  ASSERT_TRUE(manager.migrate(kClient, {.id = seen, .channel = kChannel}));
  destroy(1);
  EXPECT_EQ(sends<Rej>().remote_id, 2u);
  expect_nothing();
  ASSERT_TRUE(manager.accept(now, kClient, {.id = seen})) << "it lives on without its listener";
  sends<Rep>();
  receive(request(3, 0x13));
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kInvalidServiceId);
}

TEST_F(GivingUp, AChannel) {
  listen();
  requested();
  manager.close_channel(now, kClient, kChannel);
  sends<Rej>();
  EXPECT_EQ(manager.ids(), 0u);
}

TEST_F(GivingUp, AProcess) {
  listen();
  accepted();
  create(2);
  ASSERT_TRUE(manager.connect(now, kClient, command()));
  sends<Req>();
  manager.end_client(now, kClient);
  collect();
  EXPECT_EQ(sent.size(), 3u);  // REJ and DREQ of the one, REJ of the other
  EXPECT_EQ(manager.ids(), 0u);
  expect_no_trace();
}

TEST_F(GivingUp, IsHeardFromAPeerInEveryState) {
  ours = connect().local_id;
  receive(their_dreq());  // REP and REJ were lost
  sends<Drep>();
  EXPECT_EQ(tells(Kind::kRejected).id, 2u);
  destroy(2);

  ours = connect().local_id;
  receive(reply());
  tells(Kind::kConnectResponse);
  receive(their_rej(28, About::kOther));
  EXPECT_EQ(tells(Kind::kRejected).status, 28);
  receive(their_dreq());
  sends<Drep>();
  EXPECT_FALSE(manager.establish(kClient, {.id = 2}));
  destroy(2);

  established_by_us();
  receive(their_rej(28, About::kOther));
  tells(Kind::kDisconnected);
  receive(their_dreq());
  sends<Drep>();
  destroy(2);
  expect_no_trace();
}

TEST_F(GivingUp, RejectedReply) {
  listen();
  accepted();
  receive(their_rej(28, About::kRep));
  EXPECT_EQ(tells(Kind::kRejected).status, 28);
  advance(base::seconds(30));
  expect_nothing();
}

}  // namespace
}  // namespace verbena::cm
