// Which devices a program is to see, as text that fits an environment variable:
//   NAME=PORT[,PORT...][;NAME=...]     e.g. "mlx5_0=eth0,eth1;mlx5_1=lo"
// A PORT is an interface, or * for all of the host's. "verbena0=*" is what everybody gets who says nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace verbena::ipc {

inline constexpr char kDevicesVariable[] = "VERBENA_DEVICES";
inline constexpr char kDefaultDeviceName[] = "verbena0";
inline constexpr char kAllInterfaces[] = "*";

// The limits of a device table, which this room may not include; agent/device_builder.cpp asserts that they
// agree.
inline constexpr size_t kMaxSpecDevices = 8;
inline constexpr size_t kMaxSpecPorts = 4;
inline constexpr size_t kMaxSpecName = 63;
inline constexpr size_t kMaxSpecInterface = 15;
inline constexpr size_t kMaxSpecText = 511;

struct DeviceSpec {
  std::string name;
  std::vector<std::string> ports;  // interface names
  bool operator==(const DeviceSpec&) const = default;
};
using DeviceSpecs = std::vector<DeviceSpec>;

[[nodiscard]] DeviceSpecs default_specs();
// EINVAL with a sentence that shows where it went wrong.
[[nodiscard]] base::Result<DeviceSpecs> parse_specs(std::string_view text);
[[nodiscard]] std::string format_specs(const DeviceSpecs& specs);
// The limits of DeviceTable, and names that are file names.
[[nodiscard]] base::Result<void> check_specs(const DeviceSpecs& specs);

}  // namespace verbena::ipc
