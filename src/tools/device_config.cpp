#include "tools/device_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>

#include "client/agent_link.hpp"
#include "net/interfaces.hpp"

namespace verbena::tools {
namespace {

base::Result<void> check_interfaces(const ipc::DeviceSpecs& specs) {
  const auto interfaces = net::list_interfaces();
  if (!interfaces) return std::unexpected(interfaces.error());
  std::vector<std::string> names;
  for (const auto& interface : *interfaces) names.push_back(interface.name);
  for (const auto& spec : specs)
    for (const auto& port : spec.ports)
      if (port != ipc::kAllInterfaces && std::ranges::find(names, port) == names.end())
        return base::fail(ENODEV, fmt::format("device '{}' wants interface '{}', but there are only {} here",
                                              spec.name, port, fmt::join(names, ", ")));
  return {};
}

// "FILE:LINE", where a value stands.
std::string place(const std::string& path, const toml::node& node) {
  return fmt::format("{}:{}", path, node.source().begin.line);
}

base::Result<ipc::DeviceSpec> read_device(const toml::table& table, const std::string& path) {
  for (const auto& [key, value] : table)
    if (key != "name" && key != "ports")
      return base::fail(EINVAL, fmt::format("{}: a [[device]] has a name and ports, not '{}'",
                                            place(path, value), key.str()));
  const auto name = table["name"].value<std::string>();
  if (!name) return base::fail(EINVAL, fmt::format("{}: a [[device]] lacks its name", place(path, table)));
  ipc::DeviceSpec spec{*name, {}};
  if (const auto* ports = table["ports"].as_array()) {
    for (const auto& port : *ports) {
      const auto interface = port.value<std::string>();
      if (!interface)
        return base::fail(EINVAL,
                          fmt::format("{}: ports of '{}' are interface names", place(path, port), *name));
      spec.ports.push_back(*interface);
    }
  } else if (table.contains("ports")) {
    return base::fail(EINVAL, fmt::format("{}: ports of '{}' is a list, as in [\"eth0\"]",
                                          place(path, *table.get("ports")), *name));
  } else {
    spec.ports.emplace_back(ipc::kAllInterfaces);
  }
  return spec;
}

}  // namespace

base::Result<ipc::DeviceSpecs> read_config(const std::string& path) {
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    return base::fail(EINVAL, fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
  const auto* devices = file["device"].as_array();
  if (devices == nullptr || file.size() != 1)
    return base::fail(EINVAL, fmt::format("{} holds [[device]] tables and nothing else", path));
  ipc::DeviceSpecs specs;
  for (const auto& device : *devices) {
    const auto* table = device.as_table();
    if (table == nullptr) return base::fail(EINVAL, fmt::format("{}: device is a list of tables", path));
    auto spec = read_device(*table, path);
    if (!spec) return std::unexpected(spec.error());
    specs.push_back(std::move(*spec));
  }
  if (auto checked = ipc::check_specs(specs); !checked)
    return base::fail(checked.error().code, path + ": " + checked.error().sentence);
  return specs;
}

base::Result<ipc::DeviceSpecs> choose_devices(const DeviceOptions& options) {
  base::Result<ipc::DeviceSpecs> specs;
  if (!options.config.empty()) {
    specs = read_config(options.config);
  } else if (!options.devices.empty()) {
    specs = ipc::parse_specs(fmt::format("{}", fmt::join(options.devices, ";")));
  } else {
    specs = ipc::parse_specs(client::wanted_devices());
  }
  if (!specs) return specs;
  if (!options.name.empty()) specs->front().name = options.name;
  if (auto checked = ipc::check_specs(*specs); !checked) return std::unexpected(checked.error());
  if (auto checked = check_interfaces(*specs); !checked) return std::unexpected(checked.error());
  return specs;
}

}  // namespace verbena::tools
