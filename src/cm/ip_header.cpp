#include "cm/ip_header.hpp"

#include <sys/socket.h>

#include "roce/bytes.hpp"

namespace verbena::cm {
namespace {

constexpr size_t kVersionAt = 0;
constexpr size_t kIpVersionAt = 1;  // in its high half
constexpr size_t kSourcePortAt = 2;
constexpr size_t kSourceAt = 4;
constexpr size_t kDestinationAt = 20;
constexpr size_t kIpv4At = 12;  // an IPv4 address has the last four of its sixteen bytes

// The high part of service IDs, by port space.
constexpr uint64_t kTcp = 0x0106;
constexpr uint64_t kUdp = 0x0111;
constexpr uint64_t kIb = 0x013f;
constexpr uint64_t kIpoib = 0x0002;

void read_address(const std::byte* from, bool ipv4, ipc::CmAddress& into) {
  into.family = ipv4 ? AF_INET : AF_INET6;
  std::memcpy(into.bytes, from, sizeof into.bytes);
  if (!ipv4) return;
  std::memset(into.bytes, 0, kIpv4At);
  into.bytes[10] = into.bytes[11] = 0xff;
}

void write_address(const ipc::CmAddress& address, bool ipv4, std::byte* into) {
  std::memset(into, 0, sizeof address.bytes);
  const size_t at = ipv4 ? kIpv4At : 0;
  std::memcpy(into + at, address.bytes + at, sizeof address.bytes - at);
}

}  // namespace

std::optional<IpHeader> parse_ip_header(std::span<const std::byte, kIpHeaderBytes> bytes) {
  const auto ip_version = roce::load_be<uint8_t>(bytes.data() + kIpVersionAt) >> 4;
  if (bytes[kVersionAt] != std::byte{0} || (ip_version != 4 && ip_version != 6)) return {};
  IpHeader header;
  read_address(bytes.data() + kSourceAt, ip_version == 4, header.source);
  read_address(bytes.data() + kDestinationAt, ip_version == 4, header.destination);
  header.source.port = roce::load_be<uint16_t>(bytes.data() + kSourcePortAt);
  return header;
}

void emit_ip_header(const IpHeader& header, std::span<std::byte, kIpHeaderBytes> into) {
  const bool ipv4 = header.destination.family == AF_INET;
  into[kVersionAt] = std::byte{0};
  into[kIpVersionAt] = std::byte{static_cast<uint8_t>(ipv4 ? 0x40 : 0x60)};
  roce::store_be(into.data() + kSourcePortAt, header.source.port);
  write_address(header.source, ipv4, into.data() + kSourceAt);
  write_address(header.destination, ipv4, into.data() + kDestinationAt);
}

uint64_t service_id(ipc::CmPortSpace space, uint16_t port) {
  const auto high = [&] {
    switch (space) {
      case ipc::CmPortSpace::kTcp:
        return kTcp;
      case ipc::CmPortSpace::kUdp:
        return kUdp;
      case ipc::CmPortSpace::kIb:
        return kIb;
      case ipc::CmPortSpace::kIpoib:
        return kIpoib;
    }
    return kTcp;
  }();
  return high << 16 | port;
}

std::optional<Service> service_of(uint64_t service_id) {
  const auto port = static_cast<uint16_t>(service_id);
  for (const auto space :
       {ipc::CmPortSpace::kTcp, ipc::CmPortSpace::kUdp, ipc::CmPortSpace::kIb, ipc::CmPortSpace::kIpoib})
    if (cm::service_id(space, port) == service_id) return Service{space, port};
  return {};
}

}  // namespace verbena::cm
