#include "roce/icrc.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "roce/bytes.hpp"
#include "roce/crc32.hpp"
#include "roce/polynomial.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kBthBytes = 12;
constexpr size_t kCongestionAt = 4;  // the BTH's byte of FECN and BECN
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdpProtocol = 17;
constexpr uint16_t kDontFragment = 0x4000;
constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// What the CRC takes before the packet's own bytes: 8 bytes of ones where InfiniBand has its LRH, and the IP
// and UDP headers. Fields that change on the way are ones: hop limits, traffic classes, the flow label,
// checksums. Lengths and the IPv4 ID, which differ between packets of a flow, are zeros.
class Front {
 public:
  explicit Front(const Flow& flow) {
    put_ones(8);
    if (flow.ipv4()) {
      put<uint8_t>(0x45);
      put<uint8_t>(0xff);
      put<uint16_t>(0);
      put<uint16_t>(0);
      put(kDontFragment);
      put<uint8_t>(0xff);
      put(kUdpProtocol);
      put<uint16_t>(0xffff);
      put_bytes(flow.source.data() + kMappedPrefix.size(), 4);
      put_bytes(flow.destination.data() + kMappedPrefix.size(), 4);
    } else {
      put<uint32_t>(0x6fffffff);
      put<uint16_t>(0);
      put(kUdpProtocol);
      put<uint8_t>(0xff);
      put_bytes(flow.source.data(), flow.source.size());
      put_bytes(flow.destination.data(), flow.destination.size());
    }
    put(flow.source_port);
    put(flow.destination_port);
    put<uint16_t>(0);
    put<uint16_t>(0xffff);
  }

  [[nodiscard]] uint32_t crc() const { return crc32(0, std::span(bytes_).first(size_)); }

 private:
  template <typename T>
  void put(T value) {
    store_be(bytes_.data() + size_, value);
    size_ += sizeof(T);
  }
  void put_bytes(const void* from, size_t count) {
    std::memcpy(bytes_.data() + size_, from, count);
    size_ += count;
  }
  void put_ones(size_t count) {
    std::memset(bytes_.data() + size_, 0xff, count);
    size_ += count;
  }

  std::array<std::byte, 8 + kIpv6Bytes + kUdpBytes> bytes_;
  size_t size_ = 0;
};

// What a number of 16 bits adds to a front's CRC, which is linear.
class WordTable {
 public:
  // So many bytes of the front follow the number.
  explicit constexpr WordTable(int following)
      : high_(byte_table(following + 1)), low_(byte_table(following)) {}
  [[nodiscard]] uint32_t operator()(size_t value) const {
    return high_[value >> 8 & 0xff] ^ low_[value & 0xff];
  }

 private:
  ByteTable high_;
  ByteTable low_;
};

constexpr size_t kAfterId = kIpv4Bytes - 6 + kUdpBytes;
constexpr WordTable kUdpLength(kUdpBytes - 6);
constexpr WordTable kIpv4Length(kIpv4Bytes - 4 + kUdpBytes);
constexpr WordTable kIpv4Id(kAfterId);
constexpr WordTable kIpv6Length(kIpv6Bytes - 6 + kUdpBytes);

// FECN and BECN change on the way: ones are taken in their stead. What must be added to the front's CRC, for
// that to come out, is known before the packet is.
constexpr ByteTable kCongestion = byte_table(-static_cast<int>(kCongestionAt + 1));

// A change of the ID by d, as a polynomial of degree below 16, changes the CRC by d·x^(32+8n), where n bytes
// follow the ID. Multiplying by the inverse of that power gives d back: whether there is one that explains a
// wrong CRC is then seen by its degree. The inverses by the transport's length in words, up to the largest
// MTU with the longest headers before it.
constexpr size_t kMostWords = (4096 + 64) / 4;

constexpr auto kInverses = [] {
  std::array<uint32_t, kMostWords + 1> inverses{};
  uint32_t power = power_of_x(-static_cast<int>(32 + 8 * kAfterId));
  for (uint32_t& inverse : inverses) {
    inverse = power;
    for (int i = 0; i < 32; ++i) power = divide_by_x(power);
  }
  return inverses;
}();

}  // namespace

bool Flow::ipv4() const {
  return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), source.begin()) &&
         std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), destination.begin());
}

FlowIcrc::FlowIcrc(const Flow& flow)
    : flow_(flow), ipv4_(flow.ipv4()), front_(Front(flow).crc() ^ kCongestion[0xff]) {}

uint32_t FlowIcrc::front_of(uint16_t id, size_t transport_bytes, std::byte congestion) const {
  const size_t udp_length = kUdpBytes + transport_bytes + kIcrcBytes;
  const uint32_t front = front_ ^ kUdpLength(udp_length) ^ kCongestion[std::to_integer<size_t>(congestion)];
  return front ^ (ipv4_ ? kIpv4Length(kIpv4Bytes + udp_length) ^ kIpv4Id(id) : kIpv6Length(udp_length));
}

uint32_t FlowIcrc::icrc(uint16_t id, std::span<const std::byte> transport) const {
  CHECK(transport.size() >= kBthBytes);
  return crc32(front_of(id, transport.size(), transport[kCongestionAt]), transport);
}

void FlowIcrc::append(uint16_t id, std::span<std::byte> packet) const {
  CHECK(packet.size() >= kBthBytes + kIcrcBytes);
  const auto transport = packet.first(packet.size() - kIcrcBytes);
  store_be(packet.data() + transport.size(), std::byteswap(icrc(id, transport)));
}

void FlowIcrc::write(uint16_t id, std::span<const std::byte> headers, std::span<const std::byte> payload,
                     std::byte* packet) const {
  CHECK(headers.size() >= kBthBytes);
  const size_t transport_bytes = headers.size() + payload.size();
  const uint32_t front = front_of(id, transport_bytes, headers[kCongestionAt]);
  const uint32_t crc = crc32_copying(front, headers, packet, payload);
  store_be(packet + transport_bytes, std::byteswap(crc));
}

std::optional<uint16_t> FlowIcrc::sent_id(unsigned segment, std::span<const std::byte> packet) {
  // Every RoCE packet is whole words.
  if (packet.size() < kBthBytes + kIcrcBytes || packet.size() % 4 != 0) return std::nullopt;
  const auto transport = packet.first(packet.size() - kIcrcBytes);
  // Mostly a merged receive is a whole run. If the last wasn't, this may go on where that ended.
  const bool goes_on = segment == 0 && first_id_ != 0;
  const auto tried = static_cast<uint16_t>(goes_on ? last_id_ + 1 : first_id_ + segment);
  const uint32_t found = std::byteswap(load_be<uint32_t>(packet.data() + transport.size()));
  const uint32_t wrong = found ^ icrc(tried, transport);
  if (!ipv4_) return wrong == 0 ? std::optional<uint16_t>(0) : std::nullopt;

  uint16_t id = tried;
  if (wrong != 0) {
    if (transport.size() / 4 > kMostWords) return std::nullopt;
    const uint32_t change = multiply(wrong, kInverses[transport.size() / 4]);
    if ((change & 0xffff) != 0) return std::nullopt;
    // The ID's first byte has the higher degrees, so it comes out in the lower bits.
    id ^= std::byteswap(static_cast<uint16_t>(change >> 16));
  }
  last_id_ = id;
  first_id_ = static_cast<uint16_t>(id - segment);
  return id;
}

uint32_t icrc(const Flow& flow, uint16_t id, std::span<const std::byte> transport) {
  return FlowIcrc(flow).icrc(id, transport);
}

void append_icrc(const Flow& flow, uint16_t id, std::span<std::byte> packet) {
  FlowIcrc(flow).append(id, packet);
}

bool icrc_fits(const Flow& flow, IdRule rule, unsigned segment, std::span<const std::byte> packet) {
  return FlowIcrc(flow).fits(rule, segment, packet);
}

std::optional<uint16_t> sent_id(const Flow& flow, unsigned segment, std::span<const std::byte> packet) {
  return FlowIcrc(flow).sent_id(segment, packet);
}

}  // namespace verbena::roce
