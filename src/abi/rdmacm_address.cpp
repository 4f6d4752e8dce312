// Addresses of ids: binding, resolving, listening.
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "abi/objects.hpp"
#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

void show_source(CmId& id) { id.rdma.route.addr.src_storage = client::socket_address(id.local); }
void show_destination(CmId& id) { id.rdma.route.addr.dst_storage = client::socket_address(id.remote); }

// The device, its port and GID; what the program reads of them stands in the id.
void use_device(CmId& id, const CmDevice& device, ibv_pd* pd) {
  id.place = device.place;
  id.rdma.verbs = device.context;
  id.rdma.port_num = device.place.port_num;
  if (id.rdma.pd == nullptr) id.rdma.pd = pd;
  rdma_ib_addr& shown = id.rdma.route.addr.addr.ibaddr;
  std::memcpy(shown.sgid.raw, id.local.bytes, sizeof shown.sgid.raw);
  shown.pkey = 0xffff;
}

base::Result<void> use_device_of_source(CmId& id) {
  const auto device = device_of(id.local);
  if (!device) return std::unexpected(device.error());
  const auto pd = default_pd(device->context);
  if (!pd) return std::unexpected(pd.error());
  use_device(id, *device, *pd);
  return {};
}

base::Result<void> take_port(CmId& id) {
  const auto port = id.tie->bind(
      {.id = id.number, .reuse = id.reuse_address, .family_only = id.family_only, .address = id.local});
  if (!port) return std::unexpected(port.error());
  id.local.port = *port;
  show_source(id);
  return {};
}

base::Result<void> bind_to(CmId& id, const ipc::CmAddress& wanted) {
  if (id.step != CmStep::kIdle)
    return base::fail(EINVAL, "the RDMA CM id has an address already: " + client::to_text(id.local));
  const ipc::CmAddress before = id.local;
  id.local = wanted;
  auto bound = [&]() -> base::Result<void> {
    if (client::is_wildcard(wanted)) return {};
    if (auto local = client::check_local(wanted); !local) return local;
    return use_device_of_source(id);
  }();
  if (bound) bound = take_port(id);
  if (!bound) {
    id.local = before;
    id.rdma.verbs = nullptr;
    id.rdma.port_num = 0;
    return bound;
  }
  id.step = CmStep::kBound;
  return {};
}

// Source and device for the destination that the id has now.
base::Result<void> find_source(CmId& id) {
  if (client::is_wildcard(id.local)) {
    auto source = client::source_for(id.remote);
    if (!source) return std::unexpected(source.error());
    source->port = id.local.port;
    id.local = *source;
  }
  // To the wildcard: to this host, at the address we come from.
  if (client::is_wildcard(id.remote)) std::ranges::copy(id.local.bytes, id.remote.bytes);
  if (id.rdma.verbs == nullptr)
    if (auto found = use_device_of_source(id); !found) return found;
  if (id.step == CmStep::kIdle)
    if (auto taken = take_port(id); !taken) return taken;
  show_source(id);
  show_destination(id);
  std::memcpy(id.rdma.route.addr.addr.ibaddr.dgid.raw, id.remote.bytes, sizeof id.remote.bytes);
  return {};
}

void make_path(CmId& id) {
  id.path = {};
  std::memcpy(id.path.dgid.raw, id.remote.bytes, sizeof id.path.dgid.raw);
  std::memcpy(id.path.sgid.raw, id.local.bytes, sizeof id.path.sgid.raw);
  id.path.hop_limit = 64;
  id.path.traffic_class = id.traffic_class;
  id.path.reversible = 1;
  id.path.numb_path = 1;
  id.path.pkey = 0xffff;
  constexpr uint8_t kExactly = 2;  // the selectors' word for it
  id.path.mtu_selector = kExactly;
  id.path.mtu = id.place.mtu;
  id.path.rate_selector = kExactly;
  id.path.rate = IBV_RATE_10_GBPS;
  id.path.packet_life_time_selector = kExactly;
  id.path.packet_life_time = 15;
  id.rdma.route.path_rec = &id.path;
  id.rdma.route.num_paths = 1;
}

base::Result<void> listen(CmId& id, int backlog) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.step == CmStep::kIdle) {
    ipc::CmAddress any;
    any.family = AF_INET;
    if (auto bound = bind_to(id, any); !bound) return bound;
  }
  if (id.step != CmStep::kBound)
    return base::fail(EINVAL, "only an id that is bound, and nothing more, can listen");
  if (auto told = id.tie->listen({.id = id.number, .backlog = std::max(backlog, 0)}); !told) return told;
  id.step = CmStep::kListening;
  return {};
}

uint16_t port_of(const sockaddr_storage& address) {
  // The port stands at the same place in both families.
  sockaddr_in in{};
  std::memcpy(&in, &address, sizeof in);
  return in.sin_family == AF_INET || in.sin_family == AF_INET6 ? in.sin_port : uint16_t{0};
}

}  // namespace

base::Result<void> bind(CmId& id, const sockaddr* address) {
  if (auto ok = id.usable(); !ok) return ok;
  const auto wanted = client::cm_address(address);
  if (!wanted) return std::unexpected(wanted.error());
  return bind_to(id, *wanted);
}

base::Result<void> resolve_address(CmId& id, const sockaddr* source, const sockaddr* destination) {
  if (auto ok = id.usable(); !ok) return ok;
  auto wanted = client::cm_address(destination);
  if (!wanted) return std::unexpected(wanted.error());
  if (source != nullptr && id.step == CmStep::kIdle) {
    const auto given = client::cm_address(source);
    if (!given) return std::unexpected(given.error());
    if (!client::is_wildcard(*given) || given->port != 0)
      if (auto bound = bind_to(id, *given); !bound) return bound;
  }
  if (id.step != CmStep::kIdle && id.step != CmStep::kBound && id.step != CmStep::kAddressResolved)
    return base::fail(EINVAL, "the RDMA CM id is past the resolution of its address");
  id.remote = *wanted;
  if (auto found = find_source(id); !found) {
    id.leave(ipc::CmEventKind::kAddressError, -explained(found.error()));
  } else {
    id.step = CmStep::kAddressResolved;
    id.leave(ipc::CmEventKind::kAddressResolved);
  }
  return complete(id);
}

base::Result<void> resolve_route(CmId& id) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.step != CmStep::kAddressResolved)
    return base::fail(EINVAL, "rdma_resolve_route comes after rdma_resolve_addr, and before rdma_connect");
  make_path(id);
  id.step = CmStep::kRouteResolved;
  id.leave(ipc::CmEventKind::kRouteResolved);
  return complete(id);
}

base::Result<void> take_addresses(CmId& child, const ipc::CmEvent& request) {
  child.local = request.local;
  child.remote = request.remote;
  if (auto found = use_device_of_source(child); !found) return found;
  show_source(child);
  show_destination(child);
  std::memcpy(child.rdma.route.addr.addr.ibaddr.dgid.raw, child.remote.bytes, sizeof child.remote.bytes);
  make_path(child);
  return {};
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::bind(abi::CmId::from(id), addr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_bind_addr);

// A resolution takes no time here: the kernel's tables are asked, nobody else.
VERBENA_ENTRY int vb_rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int) noexcept {
  return abi::minus_one(
      abi::guarded([&] { return abi::resolve_address(abi::CmId::from(id), src_addr, dst_addr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_resolve_addr);

VERBENA_ENTRY int vb_rdma_resolve_route(rdma_cm_id* id, int) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::resolve_route(abi::CmId::from(id)); }));
}
VERBENA_SAME_PROTOTYPE(rdma_resolve_route);

VERBENA_ENTRY int vb_rdma_listen(rdma_cm_id* id, int backlog) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::listen(abi::CmId::from(id), backlog); }));
}
VERBENA_SAME_PROTOTYPE(rdma_listen);

VERBENA_ENTRY uint16_t vb_rdma_get_src_port(rdma_cm_id* id) noexcept {
  return abi::port_of(id->route.addr.src_storage);
}
VERBENA_SAME_PROTOTYPE(rdma_get_src_port);

VERBENA_ENTRY uint16_t vb_rdma_get_dst_port(rdma_cm_id* id) noexcept {
  return abi::port_of(id->route.addr.dst_storage);
}
VERBENA_SAME_PROTOTYPE(rdma_get_dst_port);
