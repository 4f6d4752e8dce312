// From a device specification and the host's interfaces to what the devices look like. Pure.
#pragma once

#include <vector>

#include "arena/device_table.hpp"
#include "ipc/device_spec.hpp"
#include "net/interfaces.hpp"

namespace verbena::agent {

// The largest RoCE payload that a link of this MTU carries, as IBA's code (1: 256 bytes … 5: 4096).
[[nodiscard]] uint8_t mtu_code(uint32_t link_mtu);

// The addresses of a port in the order a peer would want them: global IPv4, global IPv6, link-local,
// loopback.
[[nodiscard]] std::vector<arena::GidRecord> ordered_gids(const std::vector<net::Interface>& interfaces,
                                                         const std::string& port);

// `previous`: what processes see now, or nullptr. GIDs keep their index, gone ones leave a hole, new ones
// append.
[[nodiscard]] arena::DeviceTable build_devices(const ipc::DeviceSpecs& specs,
                                               const std::vector<net::Interface>& interfaces,
                                               uint64_t host_guid, const arena::DeviceTable* previous);

// The same on every start, different on another host, in another network namespace. `machine` is the machine
// id.
[[nodiscard]] uint64_t host_guid(std::string_view machine, uint64_t network_namespace,
                                 const std::vector<net::Interface>& interfaces);

}  // namespace verbena::agent
