// Any one byte wrong in any kind of packet: counted under a reason that fits, and nothing else happens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "packet_kinds.hpp"
#include "roce/icrc.hpp"

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
