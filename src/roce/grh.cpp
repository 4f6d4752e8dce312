#include "roce/grh.hpp"

#include <cstring>

#include "roce/bytes.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdpProtocol = 17;
constexpr uint16_t kDontFragment = 0x4000;

uint16_t ipv4_checksum(const std::byte* header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Bytes; i += 2) sum += load_be<uint16_t>(header + i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void put_ipv4(std::byte* at, const Flow& flow, const Hop& hop, size_t udp_length) {
  store_be<uint8_t>(at, 0x45);
  store_be(at + 1, hop.traffic_class);
  store_be(at + 2, static_cast<uint16_t>(kIpv4Bytes + udp_length));
  store_be(at + 6, kDontFragment);
  store_be(at + 8, hop.limit);
  store_be(at + 9, kUdpProtocol);
  std::memcpy(at + 12, flow.source.data() + 12, 4);
  std::memcpy(at + 16, flow.destination.data() + 12, 4);
  store_be(at + 10, ipv4_checksum(at));
}

void put_ipv6(std::byte* at, const Flow& flow, const Hop& hop, size_t udp_length) {
  store_be(at, 6u << 28 | static_cast<uint32_t>(hop.traffic_class) << 20 | (hop.flow_label & 0xfffff));
  store_be(at + 4, static_cast<uint16_t>(udp_length));
  store_be(at + 6, kUdpProtocol);
  store_be(at + 7, hop.limit);
  std::memcpy(at + 8, flow.source.data(), 16);
  std::memcpy(at + 24, flow.destination.data(), 16);
}

}  // namespace

std::array<std::byte, kGrhBytes> grh_of(const Flow& flow, const Hop& hop, size_t udp_payload) {
  std::array<std::byte, kGrhBytes> bytes{};
  const size_t udp_length = kUdpBytes + udp_payload;
  if (flow.ipv4()) {
    put_ipv4(bytes.data() + kGrhBytes - kIpv4Bytes, flow, hop, udp_length);
  } else {
    put_ipv6(bytes.data(), flow, hop, udp_length);
  }
  return bytes;
}

}  // namespace verbena::roce
