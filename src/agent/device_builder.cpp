#include "agent/device_builder.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "arena/registry.hpp"
#include "ipc/messages.hpp"

namespace verbena::agent {

using arena::DeviceRecord;
using arena::DeviceTable;
using arena::GidRecord;
using arena::PortRecord;
using arena::PortState;
using net::Interface;

namespace {

// A specification that was accepted fits the tables it ends in, with a final zero where there is text.
static_assert(ipc::kMaxSpecDevices == arena::kMaxDevices && ipc::kMaxSpecPorts == arena::kMaxPorts);
static_assert(ipc::kMaxSpecName + 1 == arena::kMaxDeviceName &&
              ipc::kMaxSpecInterface + 1 == arena::kMaxInterfaceName);
static_assert(ipc::kMaxSpecText + 1 == arena::kMaxSpec && ipc::kMaxSpecText + 1 == sizeof ipc::Hello{}.spec);

bool serves(const Interface& interface, const std::string& port) {
  return port == ipc::kAllInterfaces || interface.name == port;
}

bool is_ipv4(const arena::RawGid& gid) {
  constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.begin());
}

// Lower is better (DESIGN 2.6).
int rank(const arena::RawGid& gid, bool loopback) {
  if (loopback) return is_ipv4(gid) ? 4 : 5;
  if (is_ipv4(gid)) return gid[12] == 169 && gid[13] == 254 ? 2 : 0;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? 3 : 1;
}

bool same_gid(const GidRecord& a, const GidRecord& b) { return a.raw == b.raw && a.ifindex == b.ifindex; }

void place_gids(PortRecord& port, const std::vector<GidRecord>& wanted, const PortRecord* previous) {
  const auto places = std::span(port.gids);
  const auto holds = [](std::span<const GidRecord> in, const GidRecord& gid) {
    return std::ranges::any_of(in, [&](const GidRecord& g) { return g.used != 0 && same_gid(g, gid); });
  };
  size_t end =
      0;  // behind the last place that ever held a GID: places below it are not reused while others are free
  if (previous != nullptr) {
    for (size_t i = 0; i < places.size(); ++i) {
      const GidRecord& old = previous->gids[i];
      if (old.raw != arena::RawGid{}) end = i + 1;
      places[i] = old;
      places[i].used =
          old.used != 0 && std::ranges::any_of(wanted, [&](auto& g) { return same_gid(g, old); });
    }
  }
  for (const GidRecord& gid : wanted) {
    if (holds(places, gid)) continue;
    // An address that comes back gets its old place; a new one appends; a full table reuses holes.
    auto place = std::ranges::find_if(places, [&](auto& g) { return g.used == 0 && same_gid(g, gid); });
    if (place == places.end() && end < places.size())
      place = places.begin() + static_cast<std::ptrdiff_t>(end++);
    if (place == places.end()) place = std::ranges::find_if(places, [](auto& g) { return g.used == 0; });
    if (place == places.end()) return;  // more addresses than the table holds: the best ranked have a place
    *place = gid;
  }
}

PortRecord build_port(const std::string& wanted, const std::vector<Interface>& interfaces,
                      const PortRecord* previous) {
  PortRecord port;
  const auto gids = ordered_gids(interfaces, wanted);
  place_gids(port, gids, previous);
  // The port speaks for the interface behind its best address; a port without any looks at what it was given.
  const Interface* face = nullptr;
  for (const auto& interface : interfaces) {
    if (!serves(interface, wanted)) continue;
    const bool best = !gids.empty() && interface.index == gids.front().ifindex;
    if (best || (face == nullptr && (gids.empty() || interface.name == wanted))) face = &interface;
    if (interface.up) port.state = PortState::kActive;
  }
  if (face != nullptr) {
    std::memcpy(port.interface, face->name.data(), std::min(face->name.size(), sizeof port.interface - 1));
    port.ifindex = face->index;
    port.speed_mbps = face->speed_mbps;
    port.active_mtu = mtu_code(face->mtu);
  }
  return port;
}

uint64_t fnv1a(uint64_t hash, const void* data, size_t size) {
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace

uint8_t mtu_code(uint32_t link_mtu) {
  // IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28, ICRC 4: what the largest headers take.
  constexpr uint32_t kHeaders = 96;
  uint8_t code = 1;
  while (code < 5 && (uint32_t{256} << code) + kHeaders <= link_mtu) ++code;
  return code;
}

std::vector<GidRecord> ordered_gids(const std::vector<Interface>& interfaces, const std::string& port) {
  std::vector<std::pair<int, GidRecord>> ranked;
  for (const auto& interface : interfaces) {
    if (!serves(interface, port) || !interface.up) continue;
    for (const auto& address : interface.addresses) {
      GidRecord gid;
      gid.raw = address.bytes;
      gid.ifindex = interface.index;
      gid.used = 1;
      ranked.emplace_back(rank(gid.raw, interface.loopback), gid);
    }
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<int, GidRecord>::first);
  std::vector<GidRecord> gids;
  for (const auto& [order, gid] : ranked) gids.push_back(gid);
  return gids;
}

DeviceTable build_devices(const ipc::DeviceSpecs& specs, const std::vector<Interface>& interfaces,
                          uint64_t host_guid, const DeviceTable* previous) {
  DeviceTable table;
  for (const auto& spec : specs) {
    if (table.device_count == arena::kMaxDevices) break;
    const unsigned number = table.device_count++;
    DeviceRecord& device = table.devices[number];
    std::memcpy(device.name, spec.name.data(), std::min(spec.name.size(), sizeof device.name - 1));
    device.node_guid = host_guid + number;
    device.port_count = static_cast<uint8_t>(std::min<size_t>(spec.ports.size(), arena::kMaxPorts));
    for (unsigned p = 0; p < device.port_count; ++p)
      device.ports[p] = build_port(spec.ports[p], interfaces,
                                   previous != nullptr ? &previous->devices[number].ports[p] : nullptr);
  }
  return table;
}

uint64_t host_guid(std::string_view machine, uint64_t network_namespace,
                   const std::vector<Interface>& interfaces) {
  uint64_t hash = fnv1a(0xcbf29ce484222325u, machine.data(), machine.size());
  // A hardware address tells hosts and namespaces apart and outlives a reboot, which a namespace's number
  // doesn't.
  const auto with_mac =
      std::ranges::find_if(interfaces, [](const Interface& i) { return i.mac != std::array<uint8_t, 6>{}; });
  if (with_mac != interfaces.end())
    hash = fnv1a(hash, with_mac->mac.data(), with_mac->mac.size());
  else
    hash = fnv1a(hash, &network_namespace, sizeof network_namespace);
  // An EUI-64 of nobody's: the first byte says "locally administered". Device n of the host adds n.
  return (hash & 0x00ffffffffffff00u) | uint64_t{0x02} << 56;
}

}  // namespace verbena::agent
