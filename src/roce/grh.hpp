// The 40 bytes before a datagram's payload in a UD receive buffer, from which receivers
// answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "roce/icrc.hpp"

namespace verbena::roce {

inline constexpr size_t kGrhBytes = 40;

// What the kernel says of a datagram beside its addresses.
struct Hop {
  uint8_t traffic_class = 0;  // TOS over IPv4
  uint8_t limit = 64;         // TTL over IPv4
  uint32_t flow_label = 0;    // IPv6 only, 20 bits
};

// `udp_payload` is the length from BTH to ICRC. Over IPv6 the IP header, which has a GRH's form. Over IPv4 20
// zeros, then an IP header without options whose checksum is right: that's how receivers tell the two apart.
// Its ID, which nobody can see, is 0.
[[nodiscard]] std::array<std::byte, kGrhBytes> grh_of(const Flow& flow, const Hop& hop, size_t udp_payload);

}  // namespace verbena::roce
