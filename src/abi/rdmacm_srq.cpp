// Shared receive queues of ids; an XRC one has a completion queue and a domain of its own where the program
// gives none.
#include <rdma/rdma_verbs.h>

#include "abi/rdmacm_objects.hpp"
#include "abi/rdmacm_verbs.hpp"

namespace verbena::abi {
namespace {

base::Result<void> add_xrc_parts(CmId& id, ibv_srq_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr) {
    const auto domain = default_xrcd(id.rdma.verbs);
    if (!domain) return std::unexpected(domain.error());
    attributes.xrcd = *domain;
  }
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes.cq == nullptr) {
    const auto queue = own_receive_queue(id, attributes.attr.max_wr);
    if (!queue) return std::unexpected(queue.error());
    attributes.cq = *queue;
  }
  attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return {};
}

base::Result<void> create_srq_ex(CmId& id, ibv_srq_init_attr_ex* attributes) {
  if (id.rdma.srq != nullptr) return base::fail(EINVAL, "the RDMA CM id has a shared receive queue already");
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0)
    return base::fail(EINVAL, "rdma_create_srq_ex needs srq_type, and IBV_SRQ_INIT_ATTR_TYPE in comp_mask");
  ibv_pd* given = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 ? attributes->pd : nullptr;
  const auto pd = domain_for(id, given != nullptr ? given : id.rdma.pd);
  if (!pd) return std::unexpected(pd.error());
  attributes->pd = *pd;
  attributes->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  base::Result<void> done;
  if (attributes->srq_type == IBV_SRQT_XRC) done = add_xrc_parts(id, *attributes);
  if (done) {
    verbs_context* extended = verbs_get_ctx_op(id.rdma.verbs, create_srq_ex);
    if (extended == nullptr) return base::fail(EOPNOTSUPP, "the device has no shared receive queues");
    id.rdma.srq = extended->create_srq_ex(id.rdma.verbs, attributes);
    if (id.rdma.srq == nullptr) done = base::fail_errno("RDMA CM can't create a shared receive queue");
  }
  if (!done) {
    if (id.rdma.qp == nullptr || id.rdma.qp->qp_type == IBV_QPT_XRC_RECV) free_own_receive_queue(id);
    return done;
  }
  id.rdma.pd = *pd;
  return {};
}

// As the id's queue pair needs it: an XRC target takes XRC queues only.
base::Result<void> create_srq(CmId& id, ibv_pd* given, ibv_srq_init_attr* attributes) {
  ibv_srq_init_attr_ex extended{};
  extended.srq_context = attributes->srq_context;
  extended.attr = attributes->attr;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id.rdma.qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = given;
  auto made = create_srq_ex(id, &extended);
  attributes->attr = extended.attr;
  return made;
}

}  // namespace

void destroy_srq(CmId& id) {
  if (id.rdma.srq != nullptr) vb_ibv_destroy_srq(id.rdma.srq);
  id.rdma.srq = nullptr;
  // Its own completion queue goes with it, unless it is a queue pair's as well.
  if (id.rdma.qp == nullptr || id.rdma.qp->qp_type == IBV_QPT_XRC_RECV) free_own_receive_queue(id);
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::create_srq(abi::CmId::from(id), pd, attr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_create_srq);

VERBENA_ENTRY int vb_rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::create_srq_ex(abi::CmId::from(id), attr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_create_srq_ex);

VERBENA_ENTRY void vb_rdma_destroy_srq(rdma_cm_id* id) noexcept {
  const abi::NoCancel no_cancel;
  abi::destroy_srq(abi::CmId::from(id));
}
VERBENA_SAME_PROTOTYPE(rdma_destroy_srq);
