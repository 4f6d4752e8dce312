// What the devices of one view look like: written by the agent, copied out by every client.
// Plain bytes without pointers, since it lives in shared memory; a reader works on its own copy.
#pragma once

#include <array>
#include <cstdint>

#include "base/fixed_text.hpp"

namespace verbena::arena {

inline constexpr unsigned kMaxDevices = 8;
inline constexpr unsigned kMaxPorts = 4;
inline constexpr unsigned kMaxGids = 64;
inline constexpr unsigned kMaxDeviceName = 64;  // IBV_SYSFS_NAME_MAX, with the final zero
inline constexpr unsigned kMaxInterfaceName = 16;

using RawGid = std::array<uint8_t, 16>;

// IBA numbers, the same as ibv_port_state.
enum class PortState : uint8_t { kDown = 1, kActive = 4 };

struct GidRecord {
  RawGid raw{};
  uint32_t ifindex = 0;
  uint8_t used = 0;  // 0: an empty place; it may have held an address that went away
  uint8_t padding[3]{};
};

struct PortRecord {
  char interface[kMaxInterfaceName] {};  // the netdev behind the port, "" while there is none
  uint32_t ifindex = 0;
  uint32_t speed_mbps = 0;  // what the netdev claims, 0 if it doesn't
  PortState state = PortState::kDown;
  uint8_t active_mtu = 1;  // IBA code: 1 is 256 bytes, 5 is 4096
  uint8_t padding[6]{};
  GidRecord gids[kMaxGids]{};  // all are RoCE v2; an index never moves while a process sees it
};

struct DeviceRecord {
  char name[kMaxDeviceName]{};
  uint64_t node_guid = 0;  // host byte order
  uint8_t port_count = 0;
  uint8_t padding[7]{};
  PortRecord ports[kMaxPorts]{};
};

struct DeviceTable {
  uint32_t device_count = 0;
  uint32_t padding = 0;
  DeviceRecord devices[kMaxDevices]{};
};

// All devices of a host belong to one system: the host's GUID, to which a device's number is added
// (host_guid).
[[nodiscard]] inline uint64_t system_image_guid(const DeviceRecord& device) {
  return device.node_guid & ~uint64_t{0xff};
}

using base::text;

}  // namespace verbena::arena
