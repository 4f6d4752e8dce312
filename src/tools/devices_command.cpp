// `verbena devices`: what programs would see.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "client/agent_link.hpp"
#include "tools/commands.hpp"
#include "tools/device_config.hpp"

namespace verbena::tools {
namespace {

std::string guid_text(uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                     guid & 0xffff);
}

std::string address_text(const arena::RawGid& gid) {
  char text[INET6_ADDRSTRLEN];
  ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

std::string interface_name(uint32_t index) {
  char name[IF_NAMESIZE] = "?";
  ::if_indextoname(index, name);
  return name;
}

nlohmann::json to_json(const arena::DeviceRecord& device) {
  nlohmann::json ports = nlohmann::json::array();
  for (unsigned p = 0; p < device.port_count; ++p) {
    const auto& port = device.ports[p];
    nlohmann::json gids = nlohmann::json::array();
    for (unsigned i = 0; i < arena::kMaxGids; ++i)
      if (port.gids[i].used != 0)
        gids.push_back({{"index", i},
                        {"gid", address_text(port.gids[i].raw)},
                        {"type", "RoCE v2"},
                        {"interface", interface_name(port.gids[i].ifindex)}});
    ports.push_back({{"port", p + 1},
                     {"state", port.state == arena::PortState::kActive ? "active" : "down"},
                     {"mtu", 128 << port.active_mtu},
                     {"interface", std::string(arena::text(port.interface))},
                     {"gids", gids}});
  }
  return {{"name", std::string(arena::text(device.name))},
          {"node_guid", guid_text(device.node_guid)},
          {"ports", ports}};
}

void print(const nlohmann::json& device) {
  fmt::print("{}  node {}\n", device["name"].get<std::string>(), device["node_guid"].get<std::string>());
  for (const auto& port : device["ports"]) {
    fmt::print("  port {}  {}  MTU {}  {}\n", port["port"].get<int>(), port["state"].get<std::string>(),
               port["mtu"].get<int>(), port["interface"].get<std::string>());
    for (const auto& gid : port["gids"])
      fmt::print("    GID {:2}  {}  {}  {}\n", gid["index"].get<int>(), gid["type"].get<std::string>(),
                 gid["gid"].get<std::string>(), gid["interface"].get<std::string>());
  }
}

}  // namespace

int list_devices(const DeviceOptions& options, bool as_json) {
  const auto specs = choose_devices(options);
  if (!specs) return complain(specs.error());
  const auto link = client::connect_agent({.devices = ipc::format_specs(*specs)});
  if (!link) return complain(link.error());
  const auto table = link->registry.read_view(link->welcome.view);
  if (!table) return complain({EIO, "the host agent shows no devices"});
  nlohmann::json all = nlohmann::json::array();
  for (unsigned i = 0; i < table->device_count; ++i) all.push_back(to_json(table->devices[i]));
  if (as_json) {
    std::cout << all.dump(2) << "\n";
  } else {
    for (const auto& device : all) print(device);
  }
  return 0;
}

}  // namespace verbena::tools
