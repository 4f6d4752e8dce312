// Multicast groups of datagram ids: on RoCEv2 a group is an IP multicast group.
#include "abi/rdmacm_multicast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "abi/rdmacm_objects.hpp"
#include "abi/rdmacm_verbs.hpp"

namespace verbena::abi {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;

bool is_group(const ipc::CmAddress& address) {
  return address.family == AF_INET ? (address.bytes[12] & 0xf0) == 0xe0 : address.bytes[0] == 0xff;
}

bool same_group(const ipc::CmAddress& a, const ipc::CmAddress& b) {
  return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

base::Result<void> join(CmId& id, const sockaddr* address, bool send_only, void* context) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.rdma.verbs == nullptr)
    return base::fail(EINVAL, "the RDMA CM id has no device yet: bind it, or resolve the group's address");
  if (!id.datagrams()) return base::fail(EINVAL, "only ids of datagrams can join a multicast group");
  const auto group = client::cm_address(address);
  if (!group) return std::unexpected(group.error());
  if (!is_group(*group)) return base::fail(EINVAL, client::to_text(*group) + " is no multicast address");
  auto made = std::make_unique<Membership>();
  made->group = *group;
  made->context = context;
  std::memcpy(made->mgid.raw, group->bytes, sizeof made->mgid.raw);
  if (!send_only) {
    auto joined = client::join_group(*group, id.place.interface);
    if (!joined) return std::unexpected(joined.error());
    made->join = std::move(*joined);
  }
  const auto place = reinterpret_cast<uint64_t>(made.get());
  {
    const std::lock_guard lock(id.mutex);
    id.memberships.push_back(std::move(made));
  }
  id.leave(ipc::CmEventKind::kMulticastJoined, 0, place);
  return complete(id);
}

base::Result<void> join_ex(CmId& id, const rdma_cm_join_mc_attr_ex* wanted, void* context) {
  const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (wanted == nullptr || wanted->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
      (wanted->comp_mask & needed) != needed || wanted->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
    return base::fail(EINVAL, "rdma_join_multicast_ex needs an address and join flags, and knows no more");
  return join(id, wanted->addr, wanted->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

void detach(CmId& id, Membership& membership) {
  if (membership.attached && id.rdma.qp != nullptr && vb_ibv_detach_mcast != nullptr)
    vb_ibv_detach_mcast(id.rdma.qp, &membership.mgid, 0);
}

base::Result<void> leave(CmId& id, const sockaddr* address) {
  if (auto ok = id.usable(); !ok) return ok;
  const auto group = client::cm_address(address);
  if (!group) return std::unexpected(group.error());
  std::unique_ptr<Membership> leaving;
  {
    const std::lock_guard lock(id.mutex);
    const auto found =
        std::ranges::find_if(id.memberships, [&](const auto& one) { return same_group(one->group, *group); });
    if (found == id.memberships.end())
      return base::fail(EADDRNOTAVAIL, "the RDMA CM id hasn't joined " + client::to_text(*group));
    leaving = std::move(*found);
    id.memberships.erase(found);
  }
  detach(id, *leaving);
  return {};
}

}  // namespace

void leave_all_groups(CmId& id) {
  for (auto& one : id.memberships) detach(id, *one);
  id.memberships.clear();
}

base::Result<void> joined_group(CmId& id, uint64_t context, rdma_cm_event& event) {
  const std::lock_guard lock(id.mutex);
  const auto found = std::ranges::find_if(
      id.memberships, [&](const auto& one) { return reinterpret_cast<uint64_t>(one.get()) == context; });
  if (found == id.memberships.end()) return base::fail(ENOENT, "the multicast group was left already");
  Membership& membership = **found;
  rdma_ud_param& told = event.param.ud;
  told.private_data = membership.context;
  told.qp_num = kMulticastQpn;
  told.qkey = RDMA_UDP_QKEY;
  told.ah_attr = route_to_peer(id);
  told.ah_attr.grh.dgid = membership.mgid;
  told.ah_attr.grh.hop_limit = 1;
  if (id.rdma.qp == nullptr || vb_ibv_attach_mcast == nullptr) return {};
  if (const int failed = vb_ibv_attach_mcast(id.rdma.qp, &membership.mgid, 0); failed != 0)
    return base::fail(failed, "the queue pair can't be attached to " + client::to_text(membership.group));
  membership.attached = true;
  return {};
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::join(abi::CmId::from(id), addr, false, context); }));
}
VERBENA_SAME_PROTOTYPE(rdma_join_multicast);

VERBENA_ENTRY int vb_rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr,
                                            void* context) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::join_ex(abi::CmId::from(id), attr, context); }));
}
VERBENA_SAME_PROTOTYPE(rdma_join_multicast_ex);

VERBENA_ENTRY int vb_rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::leave(abi::CmId::from(id), addr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_leave_multicast);
