// Which way a queue pair's requests go: into a process of this host, or onto the network (DESIGN 2.3,
// Identity).
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "client/data_path.hpp"
#include "client/host_tie.hpp"
#include "local/local_path.hpp"
#include "wire/rc_connection.hpp"

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

}  // namespace

base::Result<verbs::PathPlan> DevicePaths::plan(base::Qpn own, uint32_t incarnation, uint32_t domain,
                                                const ibv_qp_attr& attributes) {
  if (const char* path = ::secure_getenv("VERBENA_PATH"); path != nullptr && std::string_view(path) != "wire")
    return base::fail(EINVAL,
                      fmt::format("VERBENA_PATH=\"{}\" isn't understood; \"wire\" has queue pairs use the "
                                  "network even between processes of one host, unset it otherwise",
                                  path));
  const auto record = device_.record();
  if (!record) return std::unexpected(record.error());
  const auto& address = attributes.ah_attr;
  const auto& gid = record->ports[(address.port_num - 1u) % arena::kMaxPorts]
                        .gids[address.grh.sgid_index % arena::kMaxGids];
  const auto devices = HostTie::instance()->devices();
  const bool this_host = is_of_this_host(*devices, address.grh.dgid.raw);
  if (this_host && data_->process().arena().head().wants_wire == 0) {
    const base::Qpn target{attributes.dest_qp_num & 0xffffff};
    auto peer = data_->meet(target.slot());
    if (!peer && peer.error().code == ESRCH) {
      verbs::PathPlan silence;
      std::memcpy(silence.own_gid, gid.raw.data(), sizeof silence.own_gid);
      silence.path = std::make_unique<local::SilentPath>();
      return silence;
    }
    // Both ends must choose alike. A stranger is one from either side; a wish for the wire both can see.
    if (!peer && peer.error().code != EPERM) return std::unexpected(peer.error());
    if (peer && (*peer)->arena().head().wants_wire == 0)
      return plan_local(std::move(*peer), own, incarnation, domain, target, gid);
  }
  return plan_wire(own, domain, attributes, gid, this_host);
}

verbs::PathPlan DevicePaths::plan_local(std::shared_ptr<local::Neighbour> peer, base::Qpn own,
                                        uint32_t incarnation, uint32_t domain, base::Qpn target,
                                        const arena::GidRecord& gid) {
  verbs::PathPlan plan;
  std::memcpy(plan.own_gid, gid.raw.data(), sizeof plan.own_gid);
  plan.peer_known = true;
  plan.peer_slot = peer->slot();
  plan.peer_epoch = peer->epoch();
  plan.path = std::make_unique<local::LocalPath>(
      data_->process(), data_->exchange(),
      local::LocalPath::Connection{.peer = std::move(peer),
                                   .target = target,
                                   .own = own,
                                   .incarnation = incarnation,
                                   .own_gid = {plan.own_gid[0], plan.own_gid[1]},
                                   .domain = domain});
  return plan;
}

base::Result<verbs::PathPlan> DevicePaths::plan_wire(base::Qpn own, uint32_t domain,
                                                     const ibv_qp_attr& attributes,
                                                     const arena::GidRecord& gid, bool this_host) {
  auto port = data_->port();
  if (!port)
    return base::fail(port.error().code, fmt::format("QP 0x{:06x}: {}", own.value, port.error().sentence));
  data_->process().arena().head().longest_timewait_ns = kTimewait.count();
  const auto& address = attributes.ah_attr;
  wire::RcPeering peering{.own = own,
                          .target = {attributes.dest_qp_num & 0xffffff},
                          .first_expected = {attributes.rq_psn & base::Psn::kMask},
                          .mtu = 128u << attributes.path_mtu,
                          .fetches_granted = attributes.max_dest_rd_atomic,
                          .domain = domain};
  std::memcpy(peering.peer_gid, address.grh.dgid.raw, sizeof peering.peer_gid);
  peering.route = {.from = {gid.raw},
                   .to = {},
                   .interface = gid.ifindex,
                   .traffic_class = address.grh.traffic_class,
                   .hop_limit = address.grh.hop_limit != 0 ? address.grh.hop_limit : uint8_t{64},
                   .slot = peering.target.slot(),
                   .recognised = this_host};
  std::memcpy(peering.route.to.bytes.data(), address.grh.dgid.raw, sizeof address.grh.dgid.raw);
  verbs::PathPlan plan;
  std::memcpy(plan.own_gid, gid.raw.data(), sizeof plan.own_gid);
  // What comes in is delivered through a ring from ourselves.
  plan.peer_known = true;
  plan.peer_slot = data_->process().slot();
  auto self = data_->exchange()->neighbour(plan.peer_slot);
  plan.peer_epoch = self->epoch();
  plan.pipelined = true;
  plan.path = std::make_unique<wire::RcConnection>(*port, data_->process(), std::move(self), peering);
  return plan;
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
