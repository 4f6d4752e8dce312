#include "roce/icrc.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <bitset>
#include <cstring>

#include "base/check.hpp"
#include "roce/bytes.hpp"

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
// checksums.
class Front {
 public:
  Front(const Flow& flow, uint16_t id, size_t transport_bytes) {
    const size_t udp_length = kUdpBytes + transport_bytes + kIcrcBytes;
    put_ones(8);
    if (flow.ipv4()) {
      put<uint8_t>(0x45);
      put<uint8_t>(0xff);
      put(static_cast<uint16_t>(kIpv4Bytes + udp_length));
      put(id);
      put(kDontFragment);
      put<uint8_t>(0xff);
      put(kUdpProtocol);
      put<uint16_t>(0xffff);
      put_bytes(flow.source.data() + kMappedPrefix.size(), 4);
      put_bytes(flow.destination.data() + kMappedPrefix.size(), 4);
    } else {
      put<uint32_t>(0x6fffffff);
      put(static_cast<uint16_t>(udp_length));
      put(kUdpProtocol);
      put<uint8_t>(0xff);
      put_bytes(flow.source.data(), flow.source.size());
      put_bytes(flow.destination.data(), flow.destination.size());
    }
    put(flow.source_port);
    put(flow.destination_port);
    put(static_cast<uint16_t>(udp_length));
    put<uint16_t>(0xffff);
  }

  [[nodiscard]] uint32_t crc() const { return libdeflate_crc32(0, bytes_.data(), size_); }

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

// Most packets have their front in common with the one before: of a run all but the ID.
class KnownFronts {
 public:
  uint32_t crc(const Flow& flow, uint16_t id, size_t transport_bytes) {
    if (id >= kSegmentLimit) return Front(flow, id, transport_bytes).crc();
    if (transport_bytes != transport_bytes_ || !(flow == flow_)) {
      if (transport_bytes != transport_bytes_) mask_ = mask_of(transport_bytes);
      flow_ = flow;
      transport_bytes_ = transport_bytes;
      known_.reset();
    }
    if (!known_[id]) {
      crcs_[id] = Front(flow, id, transport_bytes).crc();
      known_.set(id);
    }
    return crcs_[id];
  }

  // What it changes in the CRC of a packet of that length that its byte of FECN and BECN is ones instead of
  // zeros.
  [[nodiscard]] uint32_t mask() const { return mask_; }

 private:
  static uint32_t mask_of(size_t transport_bytes) {
    static constexpr std::array<std::byte, 256> kZeros{};
    std::array<std::byte, kBthBytes> bth{};
    uint32_t zeros = libdeflate_crc32(0, bth.data(), bth.size());
    bth[kCongestionAt] = std::byte{0xff};
    uint32_t ones = libdeflate_crc32(0, bth.data(), bth.size());
    for (size_t rest = transport_bytes - kBthBytes; rest > 0;) {
      const size_t part = std::min(rest, kZeros.size());
      zeros = libdeflate_crc32(zeros, kZeros.data(), part);
      ones = libdeflate_crc32(ones, kZeros.data(), part);
      rest -= part;
    }
    return zeros ^ ones;
  }

  Flow flow_;
  size_t transport_bytes_ = 0;  // 0: none yet
  uint32_t mask_ = 0;
  std::bitset<kSegmentLimit> known_;
  std::array<uint32_t, kSegmentLimit> crcs_;
};

// A thread that sends and receives has a few kinds of packets at a time.
KnownFronts& known_fronts(const Flow& flow, size_t transport_bytes) {
  thread_local std::array<KnownFronts, 4> known;
  return known[(flow.source_port ^ transport_bytes / 4) % known.size()];
}

// Polynomials over GF(2) modulo CRC-32's, lowest degree in bit 31, as the CRC itself has them.
constexpr uint32_t kPolynomial = 0xedb88320;
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t divide_by_x(uint32_t value) {
  return (value & 0x80000000) != 0 ? (value ^ kPolynomial) << 1 | 1 : value << 1;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 0; bit < 32; ++bit) {
    product ^= b & -(a >> 31);
    a <<= 1;
    b = b >> 1 ^ (kPolynomial & -(b & 1));
  }
  return product;
}

// A change of the ID by d, as a polynomial of degree below 16, changes the CRC by d·x^(32+8n), where n bytes
// follow the ID. Multiplying by the inverse of that power gives d back: whether there is one that explains a
// wrong CRC is then seen by its degree. The inverses by the transport's length in words, up to the largest
// MTU with the longest headers before it.
constexpr size_t kAfterId = kIpv4Bytes - 6 + kUdpBytes;
constexpr size_t kMostWords = (4096 + 64) / 4;

constexpr auto kInverses = [] {
  std::array<uint32_t, kMostWords + 1> inverses{};
  uint32_t power = kOne;
  for (size_t i = 0; i < 32 + 8 * kAfterId; ++i) power = divide_by_x(power);
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

uint32_t icrc(const Flow& flow, uint16_t id, std::span<const std::byte> transport) {
  CHECK(transport.size() >= kBthBytes);
  auto& fronts = known_fronts(flow, transport.size());
  const uint32_t front = fronts.crc(flow, id, transport.size());
  // FECN and BECN change on the way: ones are taken in their stead. Mostly they are zero, and what that
  // changes is known.
  if (transport[kCongestionAt] == std::byte{} && id < kSegmentLimit)
    return libdeflate_crc32(front, transport.data(), transport.size()) ^ fronts.mask();
  std::array<std::byte, kBthBytes> bth;
  std::memcpy(bth.data(), transport.data(), kBthBytes);
  bth[kCongestionAt] = std::byte{0xff};
  const auto rest = transport.subspan(kBthBytes);
  return libdeflate_crc32(libdeflate_crc32(front, bth.data(), kBthBytes), rest.data(), rest.size());
}

void append_icrc(const Flow& flow, uint16_t id, std::span<std::byte> packet) {
  CHECK(packet.size() >= kBthBytes + kIcrcBytes);
  const auto transport = packet.first(packet.size() - kIcrcBytes);
  const uint32_t crc = icrc(flow, id, transport);
  for (size_t i = 0; i < kIcrcBytes; ++i) packet[transport.size() + i] = static_cast<std::byte>(crc >> 8 * i);
}

std::optional<uint16_t> sent_id(const Flow& flow, unsigned segment, std::span<const std::byte> packet) {
  // Every RoCE packet is whole words.
  if (packet.size() < kBthBytes + kIcrcBytes || packet.size() % 4 != 0) return std::nullopt;
  const auto transport = packet.first(packet.size() - kIcrcBytes);
  const bool ipv4 = flow.ipv4();
  const auto tried = static_cast<uint16_t>(ipv4 ? segment : 0);
  const uint32_t found = std::byteswap(load_be<uint32_t>(packet.data() + transport.size()));
  const uint32_t wrong = found ^ icrc(flow, tried, transport);
  if (wrong == 0) return tried;
  if (!ipv4 || transport.size() / 4 > kMostWords) return std::nullopt;

  const uint32_t change = multiply(wrong, kInverses[transport.size() / 4]);
  if ((change & 0xffff) != 0) return std::nullopt;
  // The ID's first byte has the higher degrees, so it comes out in the lower bits.
  return static_cast<uint16_t>(tried ^ std::byteswap(static_cast<uint16_t>(change >> 16)));
}

bool icrc_fits(const Flow& flow, IdRule rule, unsigned segment, std::span<const std::byte> packet) {
  const auto id = sent_id(flow, segment, packet);
  return id && (rule == IdRule::kAny || *id < kSegmentLimit);
}

}  // namespace verbena::roce
