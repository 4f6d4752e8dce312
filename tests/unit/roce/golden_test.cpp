// Every packet of the kernel's rxe in tests/golden.
#include <gtest/gtest.h>

#include <set>

#include "packets.hpp"
#include "roce/codec.hpp"
#include "roce/icrc.hpp"
#include "roce/print.hpp"
#include "support/pcap.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kCongestionByte = 4;  // of the BTH, which the ICRC doesn't cover

TEST(Golden, HasTheOperationsThatItShould) {
  std::set<unsigned> opcodes;
  for (const auto& captured : test::golden_packets()) {
    opcodes.insert(std::to_integer<unsigned>(captured.bytes[0]));
  }
  EXPECT_EQ((std::set<unsigned>{0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a,
                                0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x17,
                                0x20, 0x21, 0x22, 0x26, 0x27, 0x28, 0x64, 0x65}),
            opcodes);
  EXPECT_EQ(202u, test::golden_packets().size());
}

TEST(Golden, ParsesAndIsEmittedByteByByte) {
  std::vector<std::byte> again(8192);
  for (const auto& captured : test::golden_packets()) {
    const auto parsed = parse(captured.transport());
    ASSERT_TRUE(parsed) << captured.where << ": " << parse_error_name(parsed.error());
    SCOPED_TRACE(captured.where + ": " + to_line(*parsed));
    const size_t length = emit(*parsed, again);
    ASSERT_EQ(captured.transport().size(), length);
    EXPECT_TRUE(std::equal(again.begin(), again.begin() + static_cast<ptrdiff_t>(length),
                           captured.transport().begin()));
  }
}

TEST(Golden, AlwaysHasDontFragmentAndAnIdThatWeFind) {
  for (const auto& captured : test::golden_packets()) {
    SCOPED_TRACE(captured.where);
    EXPECT_TRUE(captured.dont_fragment);
    EXPECT_NE(0, captured.ip_id) << "a check against ID 0 alone would do, then";
    EXPECT_TRUE(icrc_fits(captured.flow, IdRule::kAny, 0, captured.bytes));
    EXPECT_EQ(captured.ip_id, sent_id(captured.flow, 0, captured.bytes));
    EXPECT_EQ(captured.ip_id < kSegmentLimit, icrc_fits(captured.flow, IdRule::kSegment, 0, captured.bytes));
  }
}

TEST(Golden, IsRefusedWithAnyOneBitWrong) {
  for (auto& captured : test::golden_packets()) {
    for (size_t bit = 0; bit < captured.bytes.size() * 8; ++bit) {
      auto& byte = captured.bytes[bit / 8];
      const std::byte mask{static_cast<uint8_t>(1u << bit % 8)};
      byte ^= mask;
      ASSERT_EQ(bit / 8 == kCongestionByte, icrc_fits(captured.flow, IdRule::kAny, 0, captured.bytes))
          << captured.where << " bit " << bit;
      byte ^= mask;
    }
  }
}

TEST(Golden, IsRefusedWithOneByteWrongButForOneInSomeTenThousand) {
  size_t trials = 0;
  size_t taken = 0;
  for (auto& captured : test::golden_packets("rc_send.pcap")) {
    for (size_t at = 0; at < captured.bytes.size(); ++at) {
      if (at == kCongestionByte) continue;
      for (unsigned change = 1; change < 256; ++change) {
        captured.bytes[at] ^= static_cast<std::byte>(change);
        taken += icrc_fits(captured.flow, IdRule::kAny, 0, captured.bytes);
        captured.bytes[at] ^= static_cast<std::byte>(change);
        ++trials;
      }
    }
  }
  // By chance it's one in 65,536; errors of one byte are no random sample, and short packets have few.
  EXPECT_LT(taken, trials / 8192) << taken << " of " << trials;
  EXPECT_GT(taken, 0u);
}

}  // namespace
}  // namespace verbena::roce
