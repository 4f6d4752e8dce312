// IP and UDP headers of a packet, rebuilt: a socket neither shows nor takes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/icrc.hpp"

namespace verbena::net {

inline constexpr size_t kMaxIpHeaderBytes = 48;

// The IPv4 ID with which the packet's ICRC was made; `likely` is tried first, and is the answer when none
// fits.
[[nodiscard]] uint16_t find_id(const roce::Flow& flow, uint16_t likely, std::span<const std::byte> packet);

struct IpFields {
  roce::Flow flow;
  uint16_t id = 0;  // IPv4 only
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

// How many bytes were written. The UDP checksum is 0 over IPv4 and right over IPv6, where it has to be one.
size_t emit_ip_headers(const IpFields& fields, std::span<const std::byte> packet,
                       std::array<std::byte, kMaxIpHeaderBytes>& into);

}  // namespace verbena::net
