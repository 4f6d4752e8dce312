// The host's network interfaces and addresses, as the kernel tells them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/address.hpp"

namespace verbena::net {

struct Interface {
  std::string name;
  uint32_t index = 0;
  uint32_t mtu = 0;
  uint32_t speed_mbps = 0;  // 0: it doesn't say
  bool up = false;          // administratively up and with a carrier
  bool loopback = false;
  std::array<uint8_t, 6> mac{};  // zeros: none
  std::vector<Address> addresses;
};

// By index, so lo comes first on most hosts.
[[nodiscard]] base::Result<std::vector<Interface>> list_interfaces();

// Becomes readable when an interface or address changes; read it empty with `drain_changes`.
[[nodiscard]] base::Result<base::UniqueFd> watch_interfaces();
void drain_changes(int watch);

}  // namespace verbena::net
