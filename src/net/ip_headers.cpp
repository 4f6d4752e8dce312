#include "net/ip_headers.hpp"

#include <cstring>

#include "roce/bytes.hpp"

namespace verbena::net {
namespace {

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdpProtocol = 17;
constexpr uint16_t kDontFragment = 0x4000;
constexpr size_t kShortest = 16;  // BTH and ICRC

// The internet checksum, RFC 1071, not yet inverted.
uint32_t add_up(uint32_t sum, std::span<const std::byte> bytes) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += roce::load_be<uint16_t>(&bytes[i]);
  if (bytes.size() % 2 != 0) sum += static_cast<uint32_t>(bytes.back()) << 8;
  return (sum & 0xffff) + (sum >> 16);
}

uint16_t invert(uint32_t sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~((sum & 0xffff) + (sum >> 16)));
}

}  // namespace

uint16_t find_id(const roce::Flow& flow, uint16_t likely, std::span<const std::byte> packet) {
  if (!flow.ipv4() || packet.size() < kShortest) return likely;
  return roce::sent_id(flow, likely, packet).value_or(likely);
}

size_t emit_ip_headers(const IpFields& fields, std::span<const std::byte> packet,
                       std::array<std::byte, kMaxIpHeaderBytes>& into) {
  into.fill(std::byte{0});
  const bool ipv4 = fields.flow.ipv4();
  const size_t ip_bytes = ipv4 ? kIpv4Bytes : kIpv6Bytes;
  const auto udp_length = static_cast<uint16_t>(kUdpBytes + packet.size());
  std::byte* ip = into.data();
  std::byte* udp = ip + ip_bytes;
  if (ipv4) {
    ip[0] = std::byte{0x45};
    ip[1] = std::byte{fields.traffic_class};
    roce::store_be(ip + 2, static_cast<uint16_t>(kIpv4Bytes + udp_length));
    roce::store_be(ip + 4, fields.id);
    roce::store_be(ip + 6, kDontFragment);
    ip[8] = std::byte{fields.hop_limit};
    ip[9] = std::byte{kUdpProtocol};
    std::memcpy(ip + 12, &fields.flow.source[12], 4);
    std::memcpy(ip + 16, &fields.flow.destination[12], 4);
    roce::store_be(ip + 10, invert(add_up(0, {ip, kIpv4Bytes})));
  } else {
    roce::store_be(ip, 0x60000000u | static_cast<uint32_t>(fields.traffic_class) << 20);
    roce::store_be(ip + 4, udp_length);
    ip[6] = std::byte{kUdpProtocol};
    ip[7] = std::byte{fields.hop_limit};
    std::memcpy(ip + 8, fields.flow.source.data(), 16);
    std::memcpy(ip + 24, fields.flow.destination.data(), 16);
  }
  roce::store_be(udp, fields.flow.source_port);
  roce::store_be(udp + 2, fields.flow.destination_port);
  roce::store_be(udp + 4, udp_length);
  if (!ipv4) {
    uint32_t sum = add_up(kUdpProtocol + udp_length, {ip + 8, 32});
    sum = add_up(add_up(sum, {udp, kUdpBytes}), packet);
    const uint16_t checksum = invert(sum);
    roce::store_be(udp + 6, checksum == 0 ? uint16_t{0xffff} : checksum);
  }
  return ip_bytes + kUdpBytes;
}

}  // namespace verbena::net
