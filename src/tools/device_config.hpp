// Which devices a program is to see: from options and from TOML.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "ipc/device_spec.hpp"

namespace verbena::tools {

struct DeviceOptions {
  std::string name;                  // --device-name
  std::vector<std::string> devices;  // --device NAME=IF[,IF]
  std::string config;                // --config FILE
};

// Options win over VERBENA_DEVICES, which wins over the default. Interfaces that don't exist here are
// refused.
[[nodiscard]] base::Result<ipc::DeviceSpecs> choose_devices(const DeviceOptions& options);

// [[device]] name = "mlx5_0"  ports = ["eth0", "eth1"]
[[nodiscard]] base::Result<ipc::DeviceSpecs> read_config(const std::string& path);

}  // namespace verbena::tools
