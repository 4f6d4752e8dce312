// Endpoints: an id, and perhaps its queue pair, made in one call from what rdma_getaddrinfo found.
#include <algorithm>

#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

base::Result<void> prepare_passive(CmId& id, const rdma_addrinfo& where, ibv_pd* pd,
                                   const ibv_qp_init_attr* attributes) {
  if (auto bound = bind(id, where.ai_src_addr); !bound) return bound;
  if (attributes == nullptr) return {};
  id.child_attributes = *attributes;
  id.child_attributes->qp_type = static_cast<ibv_qp_type>(where.ai_qp_type);
  id.child_pd = pd;
  if (pd != nullptr) id.rdma.pd = pd;
  return {};
}

base::Result<void> prepare_active(CmId& id, const rdma_addrinfo& where, ibv_pd* pd,
                                  ibv_qp_init_attr* attributes) {
  if (auto found = resolve_address(id, where.ai_src_addr, where.ai_dst_addr); !found) return found;
  if (auto found = resolve_route(id); !found) return found;
  if (attributes != nullptr) {
    attributes->qp_type = static_cast<ibv_qp_type>(where.ai_qp_type);
    if (auto made = create_qp(id, pd, attributes); !made) return made;
  }
  if (where.ai_connect_len != 0) {
    const auto* bytes = static_cast<const std::byte*>(where.ai_connect);
    id.connect_data.assign(bytes, bytes + where.ai_connect_len);
  }
  return {};
}

base::Result<rdma_cm_id*> create_ep(const rdma_addrinfo* where, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (where == nullptr) return base::fail(EINVAL, "rdma_create_ep needs what rdma_getaddrinfo found");
  auto made = make_id(nullptr, nullptr, static_cast<rdma_port_space>(where->ai_port_space),
                      static_cast<ibv_qp_type>(where->ai_qp_type));
  if (!made) return std::unexpected(made.error());
  CmId& id = **made;
  auto prepared = (where->ai_flags & RAI_PASSIVE) != 0 ? prepare_passive(id, *where, pd, attributes)
                                                       : prepare_active(id, *where, pd, attributes);
  if (!prepared) {
    (void)destroy_id(id);
    return std::unexpected(prepared.error());
  }
  return &id.rdma;
}

base::Result<void> destroy_ep(CmId& id) {
  if (auto ok = id.usable(); !ok) return ok;
  destroy_qp(id);
  if (id.rdma.srq != nullptr) destroy_srq(id);
  return destroy_id(id);
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd,
                                    ibv_qp_init_attr* attr) noexcept {
  const auto made = abi::guarded([&] { return abi::create_ep(res, pd, attr); });
  if (made) *id = *made;
  return abi::minus_one(made);
}
VERBENA_SAME_PROTOTYPE(rdma_create_ep);

VERBENA_ENTRY void vb_rdma_destroy_ep(rdma_cm_id* id) noexcept {
  (void)abi::minus_one(abi::guarded([&] { return abi::destroy_ep(abi::CmId::from(id)); }));
}
VERBENA_SAME_PROTOTYPE(rdma_destroy_ep);
