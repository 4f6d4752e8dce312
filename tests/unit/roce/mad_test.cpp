#include "roce/mad.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "packets.hpp"
#include "support/pcap.hpp"

namespace verbena::roce {
namespace {

const MadHeader kHeader{.management_class = mad_class::kCommunication,
                        .class_version = 2,
                        .method = mad_method::kSend,
                        .status = 0x0102,
                        .class_specific = 0x0304,
                        .transaction = 0x1112131415161718,
                        .attribute = 0x0010,
                        .modifier = 0x21222324};

TEST(Mad, PutsEachFieldInItsPlace) {
  std::array<std::byte, kMadBytes> bytes;
  bytes.fill(std::byte{0xee});
  const auto data = bytes_of({0xaa, 0xbb});
  emit_mad({kHeader, data}, bytes);
  const auto expected = bytes_of({1,    7,    2, 3,    1, 2, 3,    4,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                  0x17, 0x18, 0, 0x10, 0, 0, 0x21, 0x22, 0x23, 0x24, 0xaa, 0xbb, 0});
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes.begin()));
  EXPECT_EQ(std::byte{0}, bytes.back());

  const auto parsed = parse_mad(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(kHeader, parsed->header);
  ASSERT_EQ(kMadDataBytes, parsed->data.size());
  EXPECT_EQ(std::byte{0xbb}, parsed->data[1]);
}

template <typename T>
T any() {
  return *rc::gen::arbitrary<T>();
}

MadHeader any_header() {
  return {.management_class = any<uint8_t>(),
          .class_version = any<uint8_t>(),
          .method = any<uint8_t>(),
          .status = any<uint16_t>(),
          .class_specific = any<uint16_t>(),
          .transaction = any<uint64_t>(),
          .attribute = any<uint16_t>(),
          .modifier = any<uint32_t>()};
}

std::vector<std::byte> any_data(size_t most) {
  std::vector<std::byte> data(*rc::gen::inRange<size_t>(0, most + 1));
  for (auto& byte : data) byte = std::byte{any<uint8_t>()};
  return data;
}

// Whether `all` is `data`, filled up with zeros.
bool holds(std::span<const std::byte> all, std::span<const std::byte> data) {
  return std::ranges::equal(all.first(data.size()), data) &&
         std::ranges::all_of(all.subspan(data.size()), [](std::byte byte) { return byte == std::byte{0}; });
}

RC_GTEST_PROP(MadProperty, ParseUndoesEmit, ()) {
  const MadHeader header = any_header();
  const auto data = any_data(kMadDataBytes);
  std::array<std::byte, kMadBytes> bytes;
  bytes.fill(std::byte{0xee});
  emit_mad({header, data}, bytes);
  const auto parsed = parse_mad(bytes);
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(parsed->header == header);
  RC_ASSERT(parsed->data.size() == kMadDataBytes);
  RC_ASSERT(holds(parsed->data, data));
}

RC_GTEST_PROP(MadProperty, ParseUndoesEmitOfVerbenasOwn, ()) {
  MadHeader header = any_header();
  const auto data = any_data(kVendorDataBytes);
  std::array<std::byte, kMadBytes> bytes;
  bytes.fill(std::byte{0xee});
  emit_verbena_mad(header, data, bytes);
  const auto parsed = parse_mad(bytes);
  RC_ASSERT(parsed.has_value());
  header.management_class = mad_class::kVerbena;
  header.class_version = 1;
  RC_ASSERT(parsed->header == header);
  RC_ASSERT(verbena_data(*parsed).size() == kVendorDataBytes);
  RC_ASSERT(holds(verbena_data(*parsed), data));
  auto other = *parsed;
  other.header.class_version = 2;
  RC_ASSERT(verbena_data(other).empty());
}

// Any bytes of the right length and version come out again, but for the two that are reserved.
RC_GTEST_PROP(MadProperty, EmitUndoesParse, ()) {
  constexpr size_t kReservedAt = 18;
  std::array<std::byte, kMadBytes> bytes;
  for (auto& byte : bytes) byte = std::byte{any<uint8_t>()};
  bytes[0] = std::byte{1};
  const auto parsed = parse_mad(bytes);
  RC_ASSERT(parsed.has_value());
  std::array<std::byte, kMadBytes> again;
  emit_mad(*parsed, again);
  bytes[kReservedAt] = bytes[kReservedAt + 1] = std::byte{0};
  RC_ASSERT(again == bytes);
}

TEST(Mad, RefusesOtherLengthsAndVersions) {
  std::vector<std::byte> bytes(kMadBytes);
  EXPECT_EQ(ParseError::kBadVersion, parse_mad(bytes).error());
  bytes[0] = std::byte{1};
  EXPECT_TRUE(parse_mad(bytes));
  bytes.push_back(std::byte{0});
  EXPECT_EQ(ParseError::kBadLength, parse_mad(bytes).error());
  bytes.resize(kMadBytes - 1);
  EXPECT_EQ(ParseError::kTooShort, parse_mad(bytes).error());
}

TEST(Mad, VerbenasOwnCarriesItsOui) {
  std::array<std::byte, kMadBytes> bytes;
  const auto data = bytes_of({1, 2, 3});
  emit_verbena_mad({.method = mad_method::kGet}, data, bytes);
  auto mad = parse_mad(bytes);
  ASSERT_TRUE(mad);
  EXPECT_GE(mad->header.management_class, 0x30);
  EXPECT_LE(mad->header.management_class, 0x4f);
  ASSERT_EQ(kVendorDataBytes, verbena_data(*mad).size());
  EXPECT_EQ(std::byte{3}, verbena_data(*mad)[2]);

  bytes[kMadHeaderBytes + kVendorOuiAt] ^= std::byte{1};
  mad = parse_mad(bytes);
  ASSERT_TRUE(mad);
  EXPECT_TRUE(verbena_data(*mad).empty()) << "another vendor's in the same class";
}

TEST(Mad, OfTheKernelsConnectionManagerAreEmittedAgain) {
  size_t seen = 0;
  for (const auto& captured : test::golden_packets()) {
    const auto packet = parse(captured.transport());
    ASSERT_TRUE(packet);
    if (packet->bth.service != Service::kUd || packet->bth.destination != kGeneralServicesQpn) continue;
    ++seen;
    EXPECT_EQ(kGeneralServicesQkey, packet->deth.qkey);
    const auto mad = parse_mad(packet->payload);
    ASSERT_TRUE(mad) << captured.where;
    EXPECT_EQ(mad_class::kCommunication, mad->header.management_class);
    EXPECT_EQ(mad_method::kSend, mad->header.method);
    std::array<std::byte, kMadBytes> again;
    emit_mad(*mad, again);
    EXPECT_TRUE(std::ranges::equal(packet->payload, again)) << captured.where;
  }
  EXPECT_EQ(7u, seen);
}

}  // namespace
}  // namespace verbena::roce
