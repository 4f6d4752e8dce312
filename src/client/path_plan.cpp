// Which way a queue pair's requests go: into a process of this host, or onto the network (DESIGN 2.3,
// Identity).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "client/data_path.hpp"
#include "client/host_tie.hpp"
#include "local/lanes.hpp"
#include "local/local_path.hpp"
#include "wire/rc_connection.hpp"
#include "wire/uc_connection.hpp"
#include "wire/ud_endpoint.hpp"

namespace verbena::client {
namespace {

// How long packets of a connection may still be under way after its end: what a peer's engine waits at most
// before it sends again, and what networks of today hold back.
constexpr base::Duration kTimewait = base::seconds(2);

bool is_of_this_host(const arena::DeviceTable& table, const uint8_t* gid) {
  for (unsigned d = 0; d < table.device_count; ++d)
    for (unsigned p = 0; p < table.devices[d].port_count; ++p)
      for (const auto& known : table.devices[d].ports[p].gids)
        if (known.used != 0 && std::memcmp(known.raw.data(), gid, known.raw.size()) == 0) return true;
  return false;
}

net::Address address_of(const ibv_gid& gid) {
  net::Address address;
  std::ranges::copy(gid.raw, address.bytes.begin());
  return address;
}

}  // namespace

base::Result<verbs::PathPlan> DevicePaths::plan(const verbs::PathWish& wish) {
  if (const char* path = ::secure_getenv("VERBENA_PATH");
      path != nullptr && *path != '\0' && std::string_view(path) != "wire")
    return base::fail(EINVAL,
                      fmt::format("VERBENA_PATH=\"{}\" isn't understood; \"wire\" has queue pairs use the "
                                  "network even between processes of one host, unset it otherwise",
                                  path));
  const auto record = device_.record();
  if (!record) return std::unexpected(record.error());
  const auto& port = record->ports[(wish.attributes.port_num - 1u) % arena::kMaxPorts];
  if (wish.type == IBV_QPT_UD) return plan_datagrams(wish, port);
  const auto& address = wish.attributes.ah_attr;
  const auto& gid = port.gids[address.grh.sgid_index % arena::kMaxGids];
  const auto devices = HostTie::instance()->devices();
  const bool this_host = is_of_this_host(*devices, address.grh.dgid.raw);
  if (this_host && data_->process().arena().head().wants_wire == 0) {
    const base::Qpn target{wish.attributes.dest_qp_num & 0xffffff};
    auto peer = data_->meet(target.slot());
    if (!peer && peer.error().code == ESRCH) {
      verbs::PathPlan silence;
      std::memcpy(silence.own_gid, gid.raw.data(), sizeof silence.own_gid);
      silence.path = std::make_unique<local::SilentPath>(wish.type);
      return silence;
    }
    // Both ends must choose alike. A stranger is one from either side; a wish for the wire both can see.
    if (!peer && peer.error().code != EPERM) return std::unexpected(peer.error());
    if (peer && (*peer)->arena().head().wants_wire == 0)
      return plan_local(std::move(*peer), wish, target, gid);
  }
  return plan_wire(wish, gid, this_host);
}

verbs::PathPlan DevicePaths::plan_local(std::shared_ptr<local::Neighbour> peer, const verbs::PathWish& wish,
                                        base::Qpn target, const arena::GidRecord& gid) {
  verbs::PathPlan plan;
  std::memcpy(plan.own_gid, gid.raw.data(), sizeof plan.own_gid);
  plan.peer_known = true;
  plan.peer_slot = peer->slot();
  plan.peer_epoch = peer->epoch();
  // A keeper's target sends nothing; and an XRC initiator gets nothing, so nobody needs a ring into it.
  if (wish.type == IBV_QPT_XRC_RECV) {
    plan.path = std::make_unique<local::SilentPath>(wish.type);
    return plan;
  }
  if (wish.type == IBV_QPT_XRC_SEND) plan.peer_known = false;
  plan.path = std::make_unique<local::LocalPath>(
      data_->process(), data_->exchange(),
      local::LocalPath::Connection{.peer = std::move(peer),
                                   .target = target,
                                   .own = wish.own,
                                   .incarnation = wish.incarnation,
                                   .own_gid = {plan.own_gid[0], plan.own_gid[1]},
                                   .domain = wish.domain,
                                   .type = wish.type});
  return plan;
}

base::Result<std::shared_ptr<wire::Port>> DevicePaths::network(base::Qpn own) {
  auto port = data_->port();
  if (!port)
    return base::fail(port.error().code, fmt::format("QP 0x{:06x}: {}", own.value, port.error().sentence));
  data_->process().arena().head().longest_timewait_ns = kTimewait.count();
  return port;
}

// What comes in by the network is delivered through a ring from ourselves.
verbs::PathPlan DevicePaths::plan_from_self() {
  verbs::PathPlan plan;
  plan.peer_known = true;
  plan.peer_slot = data_->process().slot();
  plan.peer_epoch = data_->exchange()->neighbour(plan.peer_slot)->epoch();
  plan.pipelined = true;
  return plan;
}

std::unique_ptr<verbs::LaneFinder> DevicePaths::lanes_of(base::Qpn own) const {
  return std::make_unique<local::Lanes>(data_->process(), data_->exchange(), local::Lanes::Role::kKeeper,
                                        own);
}

base::Result<verbs::PathPlan> DevicePaths::plan_wire(const verbs::PathWish& wish, const arena::GidRecord& gid,
                                                     bool this_host) {
  auto port = network(wish.own);
  if (!port) return std::unexpected(port.error());
  const ibv_qp_attr& attributes = wish.attributes;
  const auto& address = attributes.ah_attr;
  wire::Peering peering{.service = verbs::is_xrc(wish.type) ? roce::Service::kXrc : roce::Service::kRc,
                        .own = wish.own,
                        .target = {attributes.dest_qp_num & 0xffffff},
                        .first_expected = {attributes.rq_psn & base::Psn::kMask},
                        .mtu = 128u << attributes.path_mtu,
                        .fetches_granted = attributes.max_dest_rd_atomic,
                        .domain = wish.domain};
  std::memcpy(peering.peer_gid, address.grh.dgid.raw, sizeof peering.peer_gid);
  peering.route = {.from = {gid.raw},
                   .to = {},
                   .interface = gid.ifindex,
                   .traffic_class = address.grh.traffic_class,
                   .hop_limit = address.grh.hop_limit != 0 ? address.grh.hop_limit : uint8_t{64},
                   .slot = peering.target.slot(),
                   .recognised = this_host};
  std::memcpy(peering.route.to.bytes.data(), address.grh.dgid.raw, sizeof address.grh.dgid.raw);
  verbs::PathPlan plan = plan_from_self();
  std::memcpy(plan.own_gid, gid.raw.data(), sizeof plan.own_gid);
  auto self = data_->exchange()->neighbour(plan.peer_slot);
  if (wish.type == IBV_QPT_UC)
    plan.path = std::make_unique<wire::UcConnection>(*port, data_->process(), std::move(self), peering);
  else
    plan.path =
        std::make_unique<wire::RcConnection>(*port, data_->process(), std::move(self), peering,
                                             wish.type == IBV_QPT_XRC_RECV ? lanes_of(wish.own) : nullptr);
  return plan;
}

base::Result<verbs::PathPlan> DevicePaths::plan_datagrams(const verbs::PathWish& wish,
                                                          const arena::PortRecord& record) {
  auto port = network(wish.own);
  if (!port) return std::unexpected(port.error());
  wire::UdConfig config{
      .own = wish.own, .domain = wish.domain, .mtu = 128u << record.active_mtu, .qkey = wish.attributes.qkey};
  for (const auto& gid : record.gids)
    if (gid.used != 0) config.addresses.push_back({gid.raw});
  verbs::PathPlan plan = plan_from_self();
  plan.path = std::make_unique<wire::UdEndpoint>(*port, data_->process(),
                                                 data_->exchange()->neighbour(plan.peer_slot), config);
  return plan;
}

base::Result<void> attach_multicast(DataPath& data, const OpenDevice& device, base::Qpn queue_pair,
                                    const ibv_gid& group) {
  const auto record = device.record();
  if (!record) return std::unexpected(record.error());
  auto port = data.port();
  if (!port) return std::unexpected(port.error());
  std::vector<uint32_t> interfaces;
  for (unsigned p = 0; p < record->port_count; ++p)
    for (const auto& gid : record->ports[p].gids)
      if (gid.used != 0 && std::ranges::count(interfaces, gid.ifindex) == 0)
        interfaces.push_back(gid.ifindex);
  return (*port)->attach(queue_pair, address_of(group), interfaces);
}

base::Result<void> detach_multicast(DataPath& data, base::Qpn queue_pair, const ibv_gid& group) {
  auto port = data.port();
  if (!port) return std::unexpected(port.error());
  return (*port)->detach(queue_pair, address_of(group));
}

base::Result<verbs::AddressVector> resolve_address(const OpenDevice& device, const ibv_ah_attr& attributes) {
  const auto record = device.record();
  if (!record) return std::unexpected(record.error());
  if (attributes.port_num == 0 || attributes.port_num > record->port_count)
    return base::fail(EINVAL, fmt::format("an address handle's port_num is {}, but ports are 1 to {}",
                                          attributes.port_num, record->port_count));
  if (attributes.is_global == 0)
    return base::fail(EINVAL,
                      "an address handle's is_global is 0, but peers are reached by GID only: set it to 1, "
                      "grh.dgid to the peer's GID and grh.sgid_index to the index of ours");
  const auto& gids = record->ports[attributes.port_num - 1u].gids;
  const unsigned index = attributes.grh.sgid_index;
  if (index >= arena::kMaxGids || gids[index].used == 0)
    return base::fail(EINVAL, fmt::format("an address handle's grh.sgid_index is {}, but port {} has no GID "
                                          "there: use one that ibv_devinfo -v shows",
                                          index, attributes.port_num));
  const auto& gid = gids[index];
  verbs::AddressVector vector{.interface = gid.ifindex,
                              .traffic_class = attributes.grh.traffic_class,
                              .hop_limit = attributes.grh.hop_limit};
  std::memcpy(vector.own_gid.data(), gid.raw.data(), vector.own_gid.size());
  std::memcpy(vector.peer_gid.data(), attributes.grh.dgid.raw, vector.peer_gid.size());
  vector.this_host = is_of_this_host(*HostTie::instance()->devices(), vector.peer_gid.data());
  return vector;
}

std::vector<verbs::PortFacts> DevicePaths::ports() {
  std::vector<verbs::PortFacts> facts;
  const auto record = device_.record();
  if (!record) return facts;
  for (unsigned p = 0; p < record->port_count; ++p) {
    const auto& port = record->ports[p];
    verbs::PortFacts fact;
    fact.active_mtu = static_cast<ibv_mtu>(port.active_mtu);
    for (unsigned g = 0; g < arena::kMaxGids; ++g) fact.gids[g] = port.gids[g].used != 0;
    facts.push_back(fact);
  }
  return facts;
}

}  // namespace verbena::client
