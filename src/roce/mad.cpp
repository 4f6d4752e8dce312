#include "roce/mad.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "roce/bytes.hpp"

namespace verbena::roce {
namespace {

constexpr uint8_t kBaseVersion = 1;

// Where the header's fields lie; the two bytes after the attribute are reserved.
constexpr size_t kClassAt = 1;
constexpr size_t kClassVersionAt = 2;
constexpr size_t kMethodAt = 3;
constexpr size_t kStatusAt = 4;
constexpr size_t kClassSpecificAt = 6;
constexpr size_t kTransactionAt = 8;
constexpr size_t kAttributeAt = 16;
constexpr size_t kModifierAt = 20;

}  // namespace

std::expected<Mad, ParseError> parse_mad(std::span<const std::byte> bytes) {
  if (bytes.size() < kMadBytes) return std::unexpected(ParseError::kTooShort);
  if (bytes.size() > kMadBytes) return std::unexpected(ParseError::kBadLength);
  const std::byte* const at = bytes.data();
  if (load_be<uint8_t>(at) != kBaseVersion) return std::unexpected(ParseError::kBadVersion);
  Mad mad;
  mad.header.management_class = load_be<uint8_t>(at + kClassAt);
  mad.header.class_version = load_be<uint8_t>(at + kClassVersionAt);
  mad.header.method = load_be<uint8_t>(at + kMethodAt);
  mad.header.status = load_be<uint16_t>(at + kStatusAt);
  mad.header.class_specific = load_be<uint16_t>(at + kClassSpecificAt);
  mad.header.transaction = load_be<uint64_t>(at + kTransactionAt);
  mad.header.attribute = load_be<uint16_t>(at + kAttributeAt);
  mad.header.modifier = load_be<uint32_t>(at + kModifierAt);
  mad.data = bytes.subspan(kMadHeaderBytes);
  return mad;
}

void emit_mad(const Mad& mad, std::span<std::byte, kMadBytes> into) {
  CHECK(mad.data.size() <= kMadDataBytes);
  std::byte* const at = into.data();
  std::fill_n(at, kMadHeaderBytes, std::byte{0});
  store_be(at, kBaseVersion);
  store_be(at + kClassAt, mad.header.management_class);
  store_be(at + kClassVersionAt, mad.header.class_version);
  store_be(at + kMethodAt, mad.header.method);
  store_be(at + kStatusAt, mad.header.status);
  store_be(at + kClassSpecificAt, mad.header.class_specific);
  store_be(at + kTransactionAt, mad.header.transaction);
  store_be(at + kAttributeAt, mad.header.attribute);
  store_be(at + kModifierAt, mad.header.modifier);
  const auto end = std::copy(mad.data.begin(), mad.data.end(), into.begin() + kMadHeaderBytes);
  std::fill(end, into.end(), std::byte{0});
}

std::span<const std::byte> verbena_data(const Mad& mad) {
  if (mad.header.management_class != mad_class::kVerbena ||
      mad.header.class_version != MadHeader{}.class_version || mad.data.size() != kMadDataBytes)
    return {};
  const auto oui = mad.data.subspan(kVendorOuiAt, kVerbenaOui.size());
  const bool ours = std::equal(oui.begin(), oui.end(), kVerbenaOui.begin(),
                               [](std::byte a, uint8_t b) { return std::to_integer<uint8_t>(a) == b; });
  return ours ? mad.data.subspan(kVendorDataAt) : std::span<const std::byte>{};
}

void emit_verbena_mad(const MadHeader& header, std::span<const std::byte> data,
                      std::span<std::byte, kMadBytes> into) {
  CHECK(data.size() <= kVendorDataBytes);
  std::array<std::byte, kMadDataBytes> whole{};
  std::transform(kVerbenaOui.begin(), kVerbenaOui.end(), whole.begin() + kVendorOuiAt,
                 [](uint8_t byte) { return std::byte{byte}; });
  std::copy(data.begin(), data.end(), whole.begin() + kVendorDataAt);
  Mad mad{header, whole};
  mad.header.management_class = mad_class::kVerbena;
  mad.header.class_version = MadHeader{}.class_version;
  emit_mad(mad, into);
}

}  // namespace verbena::roce
