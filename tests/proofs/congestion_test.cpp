// Congestion notifications (CNP, annex A17.9).
#include <gtest/gtest.h>

#include "packet_kinds.hpp"

namespace verbena::test {
namespace {

using roce::Packet;
using roce::Service;
using wire::Drop;

// A network that marks packets has their receiver tell the sender by a packet of a service of its own. We
// slow down by other signs (engine/window.hpp): it is counted, and the message at hand goes on.
TEST(CongestionNotification, IsCountedAndChangesNothing) {
  for (const Way way : {Way::kRecognised, Way::kIpv6, Way::kForeign}) {
    PortRig rig(Service::kRc, way);
    const auto& last = packet_kind("RC SendLast");
    last.before(rig, way);
    rig.connection.requester->post({.kind = engine::Request::Kind::kSend, .length = 40});
    rig.connection.go_on(rig.now);
    const auto before = rig.connection.state();
    const auto notification = bytes_of(congestion_notification(), way);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(wire::name_of(rig.receive(notification)), "bad_service");
    EXPECT_EQ(rig.connection.state(), before);
    EXPECT_EQ(rig.receive(bytes_of(last.packet, way)), Drop::kNone);
    EXPECT_EQ(rig.receive(bytes_of(packet_kind("RC Acknowledge").packet, way)), Drop::kNone);
    EXPECT_EQ(rig.connection.host.ends().size(), 1u);
  }
}

TEST(CongestionNotification, ToNobodyIsOfNobody) {
  PortRig rig(Service::kRc, Way::kForeign);
  Packet packet = congestion_notification();
  packet.bth.destination = base::Qpn::make(kSlot, 0x0204);
  EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, Way::kForeign))), "no_connection");
  packet.bth.destination = base::Qpn::make(kSlot, 0);  // the port's own
  EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, Way::kForeign))), "no_connection");
}

}  // namespace
}  // namespace verbena::test
