// Any one byte wrong in any kind of packet: counted under a reason that fits, and nothing else happens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "packet_kinds.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"

namespace verbena::test {
namespace {

using wire::Drop;

// FECN, BECN and reserved bits change on the way, so the ICRC leaves them out (annex A17.3.3).
constexpr size_t kCongestionByte = 4;
constexpr size_t kSlotByte = 5;  // of the destination

std::vector<unsigned> changes_at(size_t at) {
  std::vector<unsigned> changes;
  // Headers have all values; of a payload's bytes, which are all alike, single bits and some others.
  const bool all = at < 44;
  for (unsigned change = 1; change < 256; ++change)
    if (all || (change & (change - 1)) == 0 || change % 83 == 0 || change == 255) changes.push_back(change);
  return changes;
}

Drop expected_at(size_t at) {
  if (at == kSlotByte) return Drop::kStray;
  return at == kSlotByte + 1 || at == kSlotByte + 2 ? Drop::kNoConnection : Drop::kBadIcrc;
}

class WrongBytes : public ::testing::TestWithParam<std::tuple<Way, bool>> {};

TEST_P(WrongBytes, ChangeNothing) {
  const auto [way, segmented] = GetParam();
  const unsigned segment = segmented ? 5 : 0;
  size_t tried = 0;
  for (const auto& kind : packet_kinds()) {
    SCOPED_TRACE(kind.name);
    PortRig rig(kind.service, way);
    kind.before(rig, way);
    const auto good = bytes_of(kind.packet, way);
    auto bytes = good;
    const auto before = rig.connection.state();
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (at == kCongestionByte) continue;
      for (const unsigned change : changes_at(at)) {
        bytes[at] = good[at] ^ static_cast<std::byte>(change);
        const Drop reason = rig.receive(bytes, segment);
        ASSERT_EQ(wire::name_of(reason), wire::name_of(expected_at(at)))
            << "byte " << at << " changed by " << change;
        ++tried;
      }
      bytes[at] = good[at];
      ASSERT_EQ(rig.connection.state(), before) << "byte " << at;
    }
    // The same with nothing wrong is welcome, and what happens then can be seen.
    EXPECT_EQ(wire::name_of(rig.receive(good, segment)), wire::name_of(kind.when_right));
    EXPECT_EQ(rig.connection.state() == before, kind.when_right != Drop::kNone);
  }
  EXPECT_GT(tried, 300'000u);
}

INSTANTIATE_TEST_SUITE_P(Over, WrongBytes,
                         ::testing::Values(std::tuple{Way::kRecognised, false},
                                           std::tuple{Way::kRecognised, true},
                                           std::tuple{Way::kIpv6, false}));

TEST(WrongBytesElsewhere, CongestionBitsAreNoneOfTheIcrcs) {
  for (const auto& kind : packet_kinds()) {
    PortRig rig(kind.service, Way::kRecognised);
    kind.before(rig, Way::kRecognised);
    auto bytes = bytes_of(kind.packet, Way::kRecognised);
    bytes[kCongestionByte] = std::byte{0xff};
    EXPECT_EQ(rig.receive(bytes), kind.when_right) << kind.name;
  }
}

TEST(WrongBytesElsewhere, TooFewOrTooMany) {
  for (const auto way : {Way::kRecognised, Way::kIpv6}) {
    for (const auto& kind : packet_kinds()) {
      SCOPED_TRACE(kind.name);
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      const auto good = bytes_of(kind.packet, way);
      const auto before = rig.connection.state();
      for (size_t length = 0; length < good.size() + 9; ++length) {
        if (length == good.size()) continue;
        auto bytes = good;
        bytes.resize(length);
        const Drop reason = rig.receive(bytes);
        ASSERT_EQ(reason, length < 16 ? Drop::kRunt : Drop::kBadIcrc) << length;
        ASSERT_EQ(rig.connection.state(), before) << length;
      }
    }
  }
}

constexpr auto kAsker = base::Qpn::make(kSlot, 7);

// A question whether we are Verbena, to which the port itself answers.
std::vector<std::byte> question(Way way) {
  std::vector<std::byte> bytes(roce::kGreetingBytes + roce::kIcrcBytes);
  roce::emit_greeting({.from = kAsker, .transaction = 42}, base::Qpn::make(kSlot, 0),
                      std::span(bytes).first<roce::kGreetingBytes>());
  seal(bytes, way);
  return bytes;
}

TEST(WrongGreetings, OneByteWrongIsNoQuestion) {
  PortRig rig(roce::Service::kRc, Way::kIpv6);
  const auto good = question(Way::kIpv6);
  auto bytes = good;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at == kCongestionByte) continue;
    for (unsigned change = 1; change < 256; ++change) {
      bytes[at] = good[at] ^ static_cast<std::byte>(change);
      ASSERT_EQ(wire::name_of(rig.receive(bytes)), wire::name_of(expected_at(at))) << at << " by " << change;
    }
    bytes[at] = good[at];
  }
  EXPECT_EQ(rig.sent_to(kAsker), 0);
  EXPECT_EQ(rig.receive(good), Drop::kNone);
  EXPECT_EQ(rig.sent_to(kAsker), 1);
}

// Each with an ICRC that fits. In the MAD behind BTH and DETH: what its header says, and the version.
TEST(WrongGreetings, OneFieldWrongIsNoQuestion) {
  constexpr size_t kMadAt = 12 + 8;
  for (const Way way : {Way::kRecognised, Way::kForeign, Way::kIpv6}) {
    PortRig rig(roce::Service::kRc, way);
    const auto good = question(way);
    for (const size_t at :
         {size_t{0}, size_t{12}, kMadAt, kMadAt + 1, kMadAt + 2, kMadAt + 3, kMadAt + 4, kMadAt + 16}) {
      auto bytes = good;
      bytes[at] ^= std::byte{0x21};
      seal(bytes, way);
      EXPECT_NE(rig.receive(bytes), Drop::kNone) << at;
      EXPECT_EQ(rig.sent_to(kAsker), 0) << at;
    }
    EXPECT_EQ(rig.receive(good), Drop::kNone);
    EXPECT_EQ(rig.sent_to(kAsker), 1);
  }
}

// An answer to what nobody asked, or from elsewhere, makes no stranger pass for Verbena.
TEST(WrongGreetings, AnAnswerWithoutAQuestionIsNone) {
  PortRig rig(roce::Service::kRc, Way::kIpv6);
  std::vector<std::byte> bytes(roce::kGreetingBytes + roce::kIcrcBytes);
  roce::emit_greeting({.answer = true, .from = roce::kGeneralServicesQpn, .transaction = 42},
                      base::Qpn::make(kSlot, 0), std::span(bytes).first<roce::kGreetingBytes>());
  seal(bytes, Way::kIpv6);
  const auto before = rig.connection.state();
  EXPECT_EQ(rig.receive(bytes), Drop::kNone);
  EXPECT_EQ(rig.connection.state(), before);
  EXPECT_EQ(rig.sent_to(kAsker), 0);
}

// A foreign host's IPv4 ID is unknown to us, which leaves a check of 16 bits (DESIGN 2.4).
TEST(WrongBytesFromForeignHosts, PassOnceInSixtyFiveThousand) {
  const auto& kind = packet_kind("RC WriteOnly");
  PortRig rig(kind.service, Way::kForeign);
  auto bytes = bytes_of(kind.packet, Way::kForeign);
  std::mt19937 random(3);
  constexpr size_t kTrials = 1 << 18;
  size_t passed = 0;
  for (size_t i = 0; i < kTrials; ++i) {
    // Anything behind the BTH, at several places.
    auto wrong = bytes;
    for (int n = 0; n < 5; ++n)
      wrong[12 + random() % (wrong.size() - 12)] ^= static_cast<std::byte>(1 + random() % 255);
    const Drop reason = rig.receive(wrong);
    passed += reason != Drop::kBadIcrc;
  }
  // 4 are expected; the seed is fixed, so that it is always the same number.
  EXPECT_LE(passed, 12u);
  EXPECT_GE(passed, 1u) << "if it refuses more than it can, it refuses good ones, too";
}

// One byte wrong is no random error. Whether it passes depends on its place and the change only, for the ICRC
// is linear; so the longest packet shows all of them.
TEST(WrongBytesFromForeignHosts, OneByteWrongPassesHardlyMoreOftenAndNeverInAHeader) {
  constexpr size_t kLongestHeaders = 12 + 28;
  roce::Packet packet = packet_kind("RC WriteOnly").packet;
  const std::vector<std::byte> payload(4096);
  packet.payload = payload;
  const auto good = bytes_of(packet, Way::kForeign);
  const auto route = route_of(Way::kForeign);
  const roce::Flow flow{.source = route.to.bytes, .destination = route.from.bytes, .source_port = 0xc123};
  auto bytes = good;
  size_t tried = 0;
  size_t passed = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at == kCongestionByte) continue;
    for (unsigned change = 1; change < 256; ++change, ++tried) {
      bytes[at] = good[at] ^ static_cast<std::byte>(change);
      const bool fits = roce::icrc_fits(flow, roce::IdRule::kAny, 0, bytes);
      EXPECT_FALSE(fits && at < kLongestHeaders) << at << " by " << change;
      passed += fits;
    }
    bytes[at] = good[at];
  }
  EXPECT_LE(passed, tried / 32'768) << passed << " of " << tried;
  EXPECT_GT(passed, 0u);
}

}  // namespace
}  // namespace verbena::test
