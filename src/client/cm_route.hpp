// What addresses mean to RDMA CM: socket addresses as the CM's messages have them, which of the host's
// addresses the kernel would send from, and which GID of a device an address is.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "arena/device_table.hpp"
#include "base/result.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::client {

// EAFNOSUPPORT: neither IPv4 nor IPv6. EINVAL: none at all.
[[nodiscard]] base::Result<ipc::CmAddress> cm_address(const sockaddr* address);
[[nodiscard]] sockaddr_storage socket_address(const ipc::CmAddress& address);
[[nodiscard]] bool is_wildcard(const ipc::CmAddress& address);
// As people write it, with the port: 10.0.0.1:7471, [fd00::7]:7471.
[[nodiscard]] std::string to_text(const ipc::CmAddress& address);

// The address that the kernel would send from to `destination`, without a port. ENETUNREACH, EHOSTUNREACH: no
// route there.
[[nodiscard]] base::Result<ipc::CmAddress> source_for(const ipc::CmAddress& destination);
// EADDRNOTAVAIL: no address of this host.
[[nodiscard]] base::Result<void> check_local(const ipc::CmAddress& address);

struct GidPlace {
  uint8_t port_num = 0;
  uint16_t index = 0;
  uint8_t mtu = 0;  // an ibv_mtu: the port's
  uint32_t interface = 0;
};
[[nodiscard]] std::optional<GidPlace> find_gid(const arena::DeviceRecord& device,
                                               const ipc::CmAddress& address);

}  // namespace verbena::client
