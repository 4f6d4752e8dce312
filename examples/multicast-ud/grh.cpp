#include "multicast-ud/grh.hpp"

#include <arpa/inet.h>
#include <infiniband/verbs.h>

namespace examples {

static_assert(sizeof(ibv_grh) == kGrhBytes);

std::string source_of(std::span<const std::byte, kGrhBytes> grh) {
  constexpr std::size_t kIpv4Header = 20;
  constexpr std::size_t kIpv4Source = 12;
  constexpr std::size_t kSourceGid = 8;
  char text[INET6_ADDRSTRLEN] = "?";
  // A GRH and an IPv6 header begin with the version 6; an IPv4 header without options with 0x45.
  if (grh[kIpv4Header] == std::byte{0x45} && (grh[0] >> 4) != std::byte{6})
    ::inet_ntop(AF_INET, &grh[kIpv4Header + kIpv4Source], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &grh[kSourceGid], text, sizeof text);
  return text;
}

}  // namespace examples
