// Datagram services.
#include "script.hpp"

namespace verbena::cm {
namespace {

using ipc::CmPortSpace;

class Sidr : public Script {
 protected:
  SidrReq ask() {
    create(2, CmPortSpace::kUdp);
    auto asked = command();
    asked.parameters.private_length = 180;
    asked.parameters.private_data[179] = 0x31;
    EXPECT_TRUE(manager.connect(now, kClient, asked));
    return sends<SidrReq>();
  }
  static SidrReq question(uint32_t number = 5) {
    SidrReq req{.request_id = number, .service_id = service_id(CmPortSpace::kUdp, kPort), .private_data = {}};
    emit_ip_header({address("10.0.0.2", 5555), address("10.0.0.1", kPort)},
                   std::span(req.private_data).first<kIpHeaderBytes>());
    return req;
  }
};

TEST_F(Sidr, AskedAndAnswered) {
  const auto req = ask();
  EXPECT_EQ(req.service_id, service_id(CmPortSpace::kUdp, kPort));
  EXPECT_EQ(req.private_data.back(), std::byte{0x31});
  SidrRep rep{.request_id = req.request_id, .qpn = 0x55, .qkey = 0x1234, .info = {}, .private_data = {}};
  rep.private_data[0] = std::byte{0x32};
  receive(rep);
  const auto event = tells(Kind::kEstablished);
  EXPECT_EQ(event.parameters.qpn, 0x55u);
  EXPECT_EQ(event.parameters.qkey, 0x1234u);
  EXPECT_EQ(event.parameters.private_length, 136);
  EXPECT_EQ(event.parameters.private_data[0], 0x32);
  receive(rep);
  EXPECT_EQ(manager.disconnect(now, kClient, {.id = 2}).error().code, EINVAL);
  expect_no_trace();
}

TEST_F(Sidr, RefusedIsUnreachableWithItsStatus) {
  const auto req = ask();
  receive(
      SidrRep{.request_id = req.request_id, .status = sidr_status::kReject, .info = {}, .private_data = {}});
  EXPECT_EQ(tells(Kind::kUnreachable).status, sidr_status::kReject);
}

TEST_F(Sidr, SilenceIsUnreachable) {
  ask();
  advance(base::milliseconds(8'100));
  for (int i = 0; i < 15; ++i) sends<SidrReq>();
  EXPECT_EQ(tells(Kind::kUnreachable).status, -ETIMEDOUT);
  expect_no_trace();
}

TEST_F(Sidr, PrivateDataHasItsLimit) {
  create(2, CmPortSpace::kUdp);
  auto asked = command();
  asked.parameters.private_length = 181;
  EXPECT_EQ(manager.connect(now, kClient, asked).error().code, EINVAL);
}

TEST_F(Sidr, AnswersAndAnswersAgain) {
  listen(0, CmPortSpace::kUdp);
  receive(question());
  const auto event = tells(Kind::kConnectRequest);
  EXPECT_EQ(event.parameters.qp_type, 4);
  EXPECT_EQ(event.parameters.private_length, 180);
  receive(question());
  expect_nothing();
  EXPECT_EQ(
      manager.accept(now, kClient, {.id = event.child, .parameters = {.private_length = 137}}).error().code,
      EINVAL);
  ASSERT_TRUE(manager.accept(now, kClient, {.id = event.child, .parameters = {.qpn = 0x66, .qkey = 7}}));
  const auto rep = sends<SidrRep>();
  EXPECT_EQ(rep.status, sidr_status::kValid);
  EXPECT_EQ(rep.qpn, 0x66u);
  EXPECT_EQ(rep.qkey, 7u);
  receive(question());
  EXPECT_EQ(sends<SidrRep>(), rep);
  expect_no_trace();
}

TEST_F(Sidr, NobodyListensOrWantsTo) {
  receive(question());
  EXPECT_EQ(sends<SidrRep>().status, sidr_status::kUnsupported);
  listen(1, CmPortSpace::kUdp);
  receive(question(6));
  const auto first = tells(Kind::kConnectRequest);
  receive(question(7));
  EXPECT_EQ(sends<SidrRep>().status, sidr_status::kReject);
  ASSERT_TRUE(manager.reject(now, kClient, {.id = first.child}));
  EXPECT_EQ(sends<SidrRep>().status, sidr_status::kReject);
  receive(question(8));
  destroy(tells(Kind::kConnectRequest).child);
  EXPECT_EQ(sends<SidrRep>().request_id, 8u);
}

}  // namespace
}  // namespace verbena::cm
