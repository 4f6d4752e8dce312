// Requests that come a moment before their listener.
#include "script.hpp"

namespace verbena::cm {
namespace {

class Early : public Script {
 protected:
  Early() : Script(Settings{.patience = base::milliseconds(50)}) {}
};

TEST_F(Early, ARequestWaitsForItsListener) {
  receive(request());
  expect_nothing();
  advance(base::milliseconds(20));
  expect_nothing();
  listen();
  advance(base::milliseconds(0));
  EXPECT_EQ(tells(Kind::kConnectRequest).id, 1u);
  (void)sends<Mra>();
}

TEST_F(Early, AListenerElsewhereDoesntHelp) {
  receive(request());
  create(3);
  ASSERT_TRUE(manager.bind(kClient, {.id = 3, .address = address("0.0.0.0", kPort + 1)}, false));
  ASSERT_TRUE(manager.listen(kClient, {.id = 3}));
  advance(base::milliseconds(49));
  expect_nothing();
  advance(base::milliseconds(1));
  EXPECT_EQ(sends<Rej>().reason, reject_reason::kInvalidServiceId);
}

TEST_F(Early, ADatagramRequestWaitsAsWell) {
  SidrReq req{.request_id = 5, .service_id = service_id(ipc::CmPortSpace::kUdp, kPort), .private_data = {}};
  emit_ip_header({address("10.0.0.2", 5555), address("10.0.0.1", kPort)},
                 std::span(req.private_data).first<kIpHeaderBytes>());
  receive(req);
  expect_nothing();
  listen(0, ipc::CmPortSpace::kUdp);
  advance(base::milliseconds(0));
  EXPECT_EQ(tells(Kind::kConnectRequest).id, 1u);
}

}  // namespace
}  // namespace verbena::cm
