// Queue pairs of ids, with completion queues of their own where the program gives none.
#include <fmt/format.h>
#include <rdma/rdma_verbs.h>

#include "abi/rdmacm_objects.hpp"
#include "abi/rdmacm_verbs.hpp"

namespace verbena::abi {
namespace {

struct OwnQueue {
  ibv_comp_channel*& channel;
  ibv_cq*& queue;
};

base::Result<void> make_queue(CmId& id, OwnQueue own, uint32_t size) {
  own.channel = vb_ibv_create_comp_channel(id.rdma.verbs);
  if (own.channel == nullptr) return base::fail_errno("RDMA CM can't create a completion channel");
  own.queue = vb_ibv_create_cq(id.rdma.verbs, static_cast<int>(size), &id.rdma, own.channel, 0);
  if (own.queue != nullptr) return {};
  auto failed = base::fail_errno("RDMA CM can't create a completion queue");
  vb_ibv_destroy_comp_channel(own.channel);
  own.channel = nullptr;
  return failed;
}

void free_queue(OwnQueue own) {
  if (own.queue != nullptr) vb_ibv_destroy_cq(own.queue);
  if (own.channel != nullptr) vb_ibv_destroy_comp_channel(own.channel);
  own.queue = nullptr;
  own.channel = nullptr;
}

OwnQueue own_send(CmId& id) { return {id.rdma.send_cq_channel, id.rdma.send_cq}; }
OwnQueue own_receive(CmId& id) { return {id.rdma.recv_cq_channel, id.rdma.recv_cq}; }

void free_queues(CmId& id) {
  free_queue(own_send(id));
  // A shared receive queue's stays with that.
  if (id.rdma.srq == nullptr) free_queue(own_receive(id));
}

// An XRC queue pair has one side only, and a target's completions are its shared receive queues'.
base::Result<void> add_queues(CmId& id, ibv_cq*& send, ibv_cq*& receive, const ibv_qp_init_attr_ex& wanted) {
  const bool sends = wanted.qp_type != IBV_QPT_XRC_RECV;
  const bool receives = sends && wanted.qp_type != IBV_QPT_XRC_SEND;
  if (sends && send == nullptr && id.rdma.send_cq == nullptr)
    if (auto made = make_queue(id, own_send(id), std::max(wanted.cap.max_send_wr, 1u)); !made) return made;
  if (receives && receive == nullptr)
    if (auto made = own_receive_queue(id, wanted.cap.max_recv_wr); !made)
      return std::unexpected(made.error());
  if (send == nullptr) send = id.rdma.send_cq;
  if (receive == nullptr) receive = id.rdma.recv_cq;
  return {};
}

// The simple form where nothing more is asked for; else the device's extended one.
ibv_qp* make_qp(ibv_pd* pd, ibv_qp_init_attr_ex* attributes) {
  if ((attributes->comp_mask & ~uint32_t{IBV_QP_INIT_ATTR_PD}) == 0) {
    // The extended struct begins as the simple one.
    return vb_ibv_create_qp(pd, reinterpret_cast<ibv_qp_init_attr*>(attributes));
  }
  attributes->comp_mask |= IBV_QP_INIT_ATTR_PD;
  attributes->pd = pd;
  verbs_context* extended = verbs_get_ctx_op(pd->context, create_qp_ex);
  if (extended == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return extended->create_qp_ex(pd->context, attributes);
}

base::Result<void> create_qp_ex(CmId& id, ibv_qp_init_attr_ex* attributes) {
  return create_qp(id, (attributes->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 ? attributes->pd : nullptr,
                   attributes);
}

// The program's, or RDMA CM's own of that device.
base::Result<void> add_xrc_domain(CmId& id, ibv_qp_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && attributes.xrcd != nullptr) return {};
  const auto domain = default_xrcd(id.rdma.verbs);
  if (!domain) return std::unexpected(domain.error());
  attributes.xrcd = *domain;
  attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  return {};
}

}  // namespace

base::Result<ibv_pd*> domain_for(CmId& id, ibv_pd* given) {
  if (auto ok = id.usable(); !ok) return std::unexpected(ok.error());
  if (id.rdma.verbs == nullptr)
    return base::fail(EINVAL, "the RDMA CM id has no device yet: bind it, or resolve its address");
  if (given == nullptr) return default_pd(id.rdma.verbs);
  if (given->context != id.rdma.verbs)
    return base::fail(EINVAL, "the protection domain is of another device, or context, than the RDMA CM id");
  return given;
}

base::Result<ibv_cq*> own_receive_queue(CmId& id, uint32_t size) {
  if (id.rdma.recv_cq == nullptr)
    if (auto made = make_queue(id, own_receive(id), std::max(size, 1u)); !made)
      return std::unexpected(made.error());
  return id.rdma.recv_cq;
}

void free_own_receive_queue(CmId& id) { free_queue(own_receive(id)); }

base::Result<void> create_qp(CmId& id, ibv_pd* given, ibv_qp_init_attr_ex* attributes) {
  if (id.rdma.qp != nullptr) return base::fail(EINVAL, "the RDMA CM id has a queue pair already");
  const auto pd = domain_for(id, given);
  if (!pd) return std::unexpected(pd.error());
  const bool target = attributes->qp_type == IBV_QPT_XRC_RECV;
  // A target has no queue: each request names one.
  if (id.rdma.srq != nullptr && attributes->srq == nullptr && !target) attributes->srq = id.rdma.srq;
  if (target)
    if (auto added = add_xrc_domain(id, *attributes); !added) return added;
  auto done = add_queues(id, attributes->send_cq, attributes->recv_cq, *attributes);
  if (done) {
    id.rdma.qp = make_qp(*pd, attributes);
    if (id.rdma.qp == nullptr) done = base::fail_errno("RDMA CM can't create a queue pair");
  }
  if (done) done = begin_qp(id);
  if (!done) {
    destroy_qp(id);
    return done;
  }
  id.rdma.pd = *pd;
  return {};
}

base::Result<void> create_qp(CmId& id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attributes->qp_context;
  extended.send_cq = attributes->send_cq;
  extended.recv_cq = attributes->recv_cq;
  extended.srq = attributes->srq;
  extended.cap = attributes->cap;
  extended.qp_type = attributes->qp_type;
  extended.sq_sig_all = attributes->sq_sig_all;
  auto made = create_qp(id, pd, &extended);
  attributes->send_cq = extended.send_cq;
  attributes->recv_cq = extended.recv_cq;
  attributes->cap = extended.cap;
  return made;
}

void destroy_qp(CmId& id) {
  if (id.rdma.qp != nullptr) vb_ibv_destroy_qp(id.rdma.qp);
  id.rdma.qp = nullptr;
  free_queues(id);
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::create_qp(abi::CmId::from(id), pd, attr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_create_qp);

VERBENA_ENTRY int vb_rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::create_qp_ex(abi::CmId::from(id), attr); }));
}
VERBENA_SAME_PROTOTYPE(rdma_create_qp_ex);

VERBENA_ENTRY void vb_rdma_destroy_qp(rdma_cm_id* id) noexcept {
  const abi::NoCancel no_cancel;
  abi::destroy_qp(abi::CmId::from(id));
}
VERBENA_SAME_PROTOTYPE(rdma_destroy_qp);
