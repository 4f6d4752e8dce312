// From nothing to established, or to a refusal.
#include "script.hpp"

namespace verbena::cm {
namespace {

using Connecting = Script;
using Accepting = Script;

TEST_F(Connecting, AsksWithWhatItWasGiven) {
  create(2);
  auto asked = command();
  asked.parameters.responder_resources = 3;
  asked.parameters.initiator_depth = 4;
  asked.parameters.private_length = 56;
  asked.parameters.private_data[55] = 0x5a;
  ASSERT_TRUE(manager.connect(now, kClient, asked));
  const auto req = sends<Req>();
  EXPECT_NE(req.local_id, 0u);
  EXPECT_EQ(req.service_id, service_id(ipc::CmPortSpace::kTcp, kPort));
  EXPECT_EQ(req.qpn, kOurQpn);
  EXPECT_EQ(req.responder_resources, 3);
  EXPECT_EQ(req.initiator_depth, 4);
  EXPECT_EQ(req.primary.local_gid, way.local);
  EXPECT_EQ(req.primary.remote_gid, way.remote);
  EXPECT_EQ(req.private_data.back(), std::byte{0x5a});
  const auto header = parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>());
  ASSERT_TRUE(header);
  EXPECT_GE(header->source.port, 32768);
}

TEST_F(Connecting, RefusesWhatCannotBe) {
  create(2);
  auto wrong = command();
  wrong.parameters.private_length = 57;
  EXPECT_EQ(manager.connect(now, kClient, wrong).error().code, EINVAL);
  wrong = command();
  wrong.local = address("10.0.0.9");
  EXPECT_EQ(manager.connect(now, kClient, wrong).error().code, EADDRNOTAVAIL);
  wrong = command();
  wrong.remote.family = AF_INET6;
  EXPECT_EQ(manager.connect(now, kClient, wrong).error().code, EAFNOSUPPORT);
  wrong.id = 77;
  EXPECT_EQ(manager.connect(now, kClient, wrong).error().code, EINVAL);
  ASSERT_TRUE(manager.connect(now, kClient, command()));
  sends<Req>();
  EXPECT_EQ(manager.connect(now, kClient, command()).error().code, EINVAL) << "a second time";
}

TEST_F(Connecting, ReplyThenReady) {
  established_by_us();
  EXPECT_FALSE(manager.establish(kClient, {.id = 2}));
  advance(base::seconds(100));
  expect_nothing();
}

TEST_F(Connecting, ReplyIsSeenFromOurSide) {
  ours = connect().local_id;
  Rep rep = reply();
  rep.responder_resources = 5;
  rep.initiator_depth = 6;
  rep.private_data[0] = std::byte{0x42};
  receive(rep);
  const auto event = tells(Kind::kConnectResponse);
  EXPECT_EQ(event.id, 2u);
  EXPECT_EQ(event.parameters.initiator_depth, 5);
  EXPECT_EQ(event.parameters.responder_resources, 6);
  EXPECT_EQ(event.parameters.private_length, 196);
  EXPECT_EQ(event.parameters.private_data[0], 0x42);
  EXPECT_EQ(event.local_comm_id, ours);
  EXPECT_EQ(event.remote_comm_id, kTheirs);
}

TEST_F(Connecting, SilenceIsUnreachableAfterEightSeconds) {
  connect();
  advance(base::milliseconds(7'900));
  EXPECT_EQ(sent.size(), 15u);
  for (int i = 0; i < 15; ++i) sends<Req>();
  expect_nothing();
  advance(base::milliseconds(200));
  EXPECT_EQ(tells(Kind::kUnreachable).status, -ETIMEDOUT);
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kTimeout);
  expect_no_trace();
}

TEST_F(Connecting, AcknowledgedItWaitsAsLongAsThePeerLives) {
  ours = connect().local_id;
  for (int i = 0; i < 100; ++i) {
    receive(Mra{.local_id = kTheirs,
                .remote_id = ours,
                .about = About::kReq,
                .service_timeout = 24,
                .private_data = {}});
    advance(base::milliseconds(4'700));
    expect_nothing();
    advance(base::milliseconds(200));
    sends<Req>();
  }
  advance(base::seconds(9));
  EXPECT_EQ(tells(Kind::kUnreachable).status, -ETIMEDOUT);
  sent.clear();
}

TEST_F(Connecting, RejectionCarriesReasonAndData) {
  ours = connect().local_id;
  Rej rej = their_rej(28);
  rej.private_data[147] = std::byte{0x99};
  receive(rej);
  const auto event = tells(Kind::kRejected);
  EXPECT_EQ(event.status, 28);
  EXPECT_EQ(event.parameters.private_length, 148);
  EXPECT_EQ(event.parameters.private_data[147], 0x99);
  receive(rej);
  advance(base::seconds(30));
  expect_nothing();
  EXPECT_TRUE(manager.connect(now, kClient, command())) << "it may try again";
  sends<Req>();
}

TEST_F(Connecting, RejectionWithoutANumber) {
  ours = connect().local_id;
  Rej rej = their_rej(reject_reason::kInvalidServiceId);
  rej.local_id = 0;  // nobody listens: there is no connection to number
  receive(rej);
  EXPECT_EQ(tells(Kind::kRejected).status, 8);
}

TEST_F(Connecting, RepeatedReplyIsAcknowledgedThenAnswered) {
  ours = connect().local_id;
  receive(reply());
  tells(Kind::kConnectResponse);
  receive(reply());
  EXPECT_EQ(sends<Mra>().about, About::kRep);
  ASSERT_TRUE(manager.establish(kClient, {.id = 2}));
  sends<Rtu>();
  receive(reply());
  sends<Rtu>();
  Rep others = reply();
  others.local_id = kTheirs + 1;
  receive(others);
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kInvalidCommId);
}

TEST_F(Connecting, RejectsAReply) {
  ours = connect().local_id;
  receive(reply());
  tells(Kind::kConnectResponse);
  ASSERT_TRUE(manager.reject(now, kClient, {.id = 2}));
  const auto rej = sends<Rej>();
  EXPECT_EQ(rej.about, About::kRep);
  EXPECT_EQ(rej.reason, reject_reason::kConsumerDefined);
  receive(reply());  // it was lost
  EXPECT_EQ(sends<Rej>(), rej);
  expect_no_trace();
}

TEST_F(Connecting, ReplyToNobodyIsRejected) {
  ours = 0x1234;
  receive(reply());
  const auto rej = sends<Rej>();
  EXPECT_EQ(rej.remote_id, kTheirs);
  EXPECT_EQ(rej.reason, reject_reason::kInvalidCommId);
}

TEST_F(Connecting, XrcHasItsReplysNumberElsewhere) {
  create(2);
  auto asked = command();
  asked.parameters.qp_type = 9;
  ASSERT_TRUE(manager.connect(now, kClient, asked));
  const auto req = sends<Req>();
  EXPECT_EQ(req.transport, 3);
  EXPECT_EQ(req.extended_transport, 1);
  ours = req.local_id;
  Rep rep = reply();
  std::swap(rep.qpn, rep.eecn);
  receive(rep);
  EXPECT_EQ(tells(Kind::kConnectResponse).parameters.qpn, kTheirQpn);
}

TEST_F(Accepting, Xrc) {
  listen();
  Req req = request();
  req.transport = 3;
  req.extended_transport = 1;
  receive(req);
  const auto event = tells(Kind::kConnectRequest);
  sends<Mra>();
  EXPECT_EQ(event.parameters.qp_type, 10);
  ASSERT_TRUE(manager.accept(now, kClient, {.id = event.child, .parameters = {.qpn = kOurQpn}}));
  const auto rep = sends<Rep>();
  EXPECT_EQ(rep.eecn, kOurQpn);
  EXPECT_EQ(rep.qpn, 0u);
  EXPECT_TRUE(rep.srq);
}

TEST_F(Accepting, AnnouncesAndAcknowledges) {
  listen();
  Req req = request();
  req.responder_resources = 3;
  req.initiator_depth = 4;
  req.mtu = 5;
  req.private_data[kIpHeaderBytes] = std::byte{0x42};
  receive(req);
  const auto event = tells(Kind::kConnectRequest);
  EXPECT_EQ(event.id, 1u);
  EXPECT_GE(event.child, ipc::kFirstChild);
  EXPECT_EQ(gid_of(event.local), way.local);
  EXPECT_EQ(event.local.port, kPort);
  EXPECT_EQ(gid_of(event.remote), way.remote);
  EXPECT_EQ(event.remote.port, 5555);
  EXPECT_EQ(event.parameters.qpn, kTheirQpn);
  EXPECT_EQ(event.parameters.initiator_depth, 3);
  EXPECT_EQ(event.parameters.responder_resources, 4);
  EXPECT_EQ(event.parameters.mtu, 5);
  EXPECT_EQ(event.parameters.qp_type, 2);
  EXPECT_EQ(event.parameters.private_length, 56);
  EXPECT_EQ(event.parameters.private_data[0], 0x42);
  const auto mra = sends<Mra>();
  EXPECT_EQ(mra.service_timeout, 24);
  EXPECT_EQ(mra.about, About::kReq);
  receive(req);
  EXPECT_EQ(sends<Mra>(), mra);
  advance(base::seconds(1'000));  // a program may think as long as it likes
  expect_nothing();
}

TEST_F(Accepting, RefusesWhereNobodyListens) {
  receive(request());
  const auto rej = sends<Rej>();
  EXPECT_EQ(rej.reason, reject_reason::kInvalidServiceId);
  EXPECT_EQ(rej.remote_id, kTheirs);
  EXPECT_EQ(rej.local_id, 0u);
  listen();
  Req req = request();
  req.service_id = service_id(ipc::CmPortSpace::kUdp, kPort);
  receive(req);
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kInvalidServiceId);
  req = request();
  req.private_data[1] = std::byte{0};  // no IP header
  receive(req);
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kInvalidServiceId);
  EXPECT_EQ(manager.connections(), 0u);
}

TEST_F(Accepting, FullBacklogRejectsUntilOneIsAnswered) {
  listen(2);
  const uint32_t first = requested(request(1, 0x11));
  const uint32_t second = requested(request(2, 0x12));
  EXPECT_NE(first, second);
  receive(request(3, 0x13));
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kConsumerDefined);
  ASSERT_TRUE(manager.reject(now, kClient, {.id = first}));
  sends<Rej>();
  requested(request(4, 0x14));
  receive(request(5, 0x15));
  sends<Rej>();
  ASSERT_TRUE(manager.accept(now, kClient, {.id = second}));
  sends<Rep>();
  requested(request(6, 0x16));
}

TEST_F(Accepting, RepeatsItsReplyUntilTheOtherIsReady) {
  listen();
  const uint32_t id = accepted();
  advance(base::milliseconds(600));
  sends<Rep>();
  receive(request());
  sends<Rep>();
  receive(Mra{.local_id = kTheirs,
              .remote_id = ours,
              .about = About::kRep,
              .service_timeout = 20,
              .private_data = {}});
  advance(base::seconds(4));
  expect_nothing();
  receive(Rtu{.local_id = kTheirs, .remote_id = ours, .private_data = {}});
  EXPECT_EQ(tells(Kind::kEstablished).id, id);
  receive(Rtu{.local_id = kTheirs, .remote_id = ours, .private_data = {}});
  receive(request());
  advance(base::seconds(100));
  expect_nothing();
}

TEST_F(Accepting, SilenceAfterTheReplyIsUnreachable) {
  listen();
  accepted();
  advance(base::milliseconds(8'100));
  for (int i = 0; i < 15; ++i) sends<Rep>();
  EXPECT_EQ(tells(Kind::kUnreachable).status, -ETIMEDOUT);
  sends<Rej>();
  sends<Dreq>();  // for one who is ready, but can't be heard
  expect_no_trace();
}

TEST_F(Accepting, AMessageIsAsGoodAsReady) {
  listen();
  const uint32_t id = accepted();
  ASSERT_TRUE(manager.notify(kClient, {.id = id}));
  tells(Kind::kEstablished);
  EXPECT_EQ(manager.notify(kClient, {.id = id}).error().code, EISCONN);
  receive(Rtu{.local_id = kTheirs, .remote_id = ours, .private_data = {}});
  advance(base::seconds(10));
  expect_nothing();
}

TEST_F(Accepting, RejectsWithDataAndAgainIfItIsLost) {
  listen();
  const uint32_t id = requested();
  ipc::CmReject reject{.id = id, .private_length = 149};
  EXPECT_EQ(manager.reject(now, kClient, reject).error().code, EINVAL);
  reject.private_length = 148;
  reject.private_data[147] = 0x77;
  ASSERT_TRUE(manager.reject(now, kClient, reject));
  const auto rej = sends<Rej>();
  EXPECT_EQ(rej.reason, reject_reason::kConsumerDefined);
  EXPECT_EQ(rej.private_data[147], std::byte{0x77});
  receive(request());
  EXPECT_EQ(sends<Rej>(), rej);
  EXPECT_EQ(manager.accept(now, kClient, {.id = id}).error().code, EINVAL);
}

TEST_F(Accepting, PrivateDataOfAReplyHasItsLimit) {
  listen();
  const uint32_t id = requested();
  EXPECT_EQ(manager.accept(now, kClient, {.id = id, .parameters = {.private_length = 197}}).error().code,
            EINVAL);
  ASSERT_TRUE(manager.accept(now, kClient, {.id = id, .parameters = {.private_length = 196}}));
  sends<Rep>();
}

TEST_F(Accepting, TheOtherGaveUpBefore) {
  listen();
  const uint32_t id = requested();
  Rej rej{.local_id = kTheirs,
          .about = About::kReq,
          .info_length = 8,
          .reason = reject_reason::kTimeout,
          .info = {},
          .private_data = {}};
  for (size_t i = 0; i < 8; ++i) rej.info[i] = static_cast<std::byte>(kTheirGuid >> (56 - 8 * i));
  receive(rej);
  const auto event = tells(Kind::kRejected);
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(event.status, reject_reason::kTimeout);
  EXPECT_EQ(manager.accept(now, kClient, {.id = id}).error().code, EINVAL);
}

TEST_F(Accepting, ListenerOfOneAddressBeforeTheWildcards) {
  create(3);
  EXPECT_EQ(manager.bind(kClient, {.id = 3, .address = address("10.0.0.7", kPort)}, false).error().code,
            EADDRNOTAVAIL);
  EXPECT_EQ(manager.bind(kClient, {.id = 3, .address = address("10.0.0.1", 80)}, false).error().code, EACCES);
  ASSERT_TRUE(manager.bind(kClient, {.id = 3, .address = address("10.0.0.1", 80)}, true));
  EXPECT_EQ(manager.bind(kClient, {.id = 3, .address = address("10.0.0.1", 81)}, true).error().code, EINVAL);
}

}  // namespace
}  // namespace verbena::cm
