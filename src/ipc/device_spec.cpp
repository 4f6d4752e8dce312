#include "ipc/device_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::ipc {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool is_plain(std::string_view name) {
  return std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ':' || c == '@';
  });
}

base::Result<void> check_name(std::string_view what, std::string_view name, size_t longest) {
  if (name.empty() || name.size() > longest || !is_plain(name) || name == "." || name == "..")
    return base::fail(EINVAL, fmt::format("'{}' is no {}: 1 to {} letters, digits, '_', '-', '.' or ':'",
                                          name, what, longest));
  return {};
}

}  // namespace

DeviceSpecs default_specs() { return {{kDefaultDeviceName, {kAllInterfaces}}}; }

base::Result<DeviceSpecs> parse_specs(std::string_view text) {
  if (text.empty()) return default_specs();
  DeviceSpecs specs;
  for (const auto part : split(text, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return base::fail(EINVAL,
                        fmt::format("device '{}' names no port; write NAME=INTERFACE[,INTERFACE...]", part));
    DeviceSpec spec{std::string(part.substr(0, equals)), {}};
    for (const auto port : split(part.substr(equals + 1), ',')) spec.ports.emplace_back(port);
    specs.push_back(std::move(spec));
  }
  if (auto checked = check_specs(specs); !checked) return std::unexpected(checked.error());
  return specs;
}

std::string format_specs(const DeviceSpecs& specs) {
  std::string text;
  for (const auto& spec : specs)
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", spec.name, fmt::join(spec.ports, ","));
  return text;
}

base::Result<void> check_specs(const DeviceSpecs& specs) {
  if (specs.empty() || specs.size() > kMaxSpecDevices)
    return base::fail(
        EINVAL, fmt::format("{} devices asked for; 1 to {} are possible", specs.size(), kMaxSpecDevices));
  for (const auto& spec : specs) {
    if (auto ok = check_name("device name", spec.name, kMaxSpecName); !ok) return ok;
    if (std::ranges::count(specs, spec.name, &DeviceSpec::name) > 1)
      return base::fail(EINVAL, fmt::format("device '{}' is named twice", spec.name));
    if (spec.ports.empty() || spec.ports.size() > kMaxSpecPorts)
      return base::fail(EINVAL, fmt::format("device '{}' has {} ports; 1 to {} are possible", spec.name,
                                            spec.ports.size(), kMaxSpecPorts));
    for (const auto& port : spec.ports)
      if (port != kAllInterfaces)
        if (auto ok = check_name("interface name", port, kMaxSpecInterface); !ok) return ok;
  }
  if (format_specs(specs).size() > kMaxSpecText)
    return base::fail(EINVAL,
                      fmt::format("the device specification is longer than {} characters", kMaxSpecText));
  return {};
}

}  // namespace verbena::ipc
