// The states of a queue pair that RDMA CM made, and the attributes of one that the program made itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "abi/rdmacm_objects.hpp"
#include "abi/rdmacm_verbs.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

// 20 ms: with few retries a peer that has to be scheduled before it posts its receive still gets there. The
// kernel gives IBA's 0, 655 ms.
constexpr uint8_t kRnrTimer = 22;
constexpr uint8_t kDefaultAckTimeout = 16;  // 268 ms, where the peer told none

base::Result<void> modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  if (const int failed = vb_ibv_modify_qp(qp, &attributes, mask); failed != 0)
    return base::fail(failed, fmt::format("RDMA CM can't move QP 0x{:06x} to state {}", qp->qp_num,
                                          static_cast<int>(attributes.qp_state)));
  return {};
}

ibv_qp_type type_of(const CmId& id) { return id.rdma.qp != nullptr ? id.rdma.qp->qp_type : id.rdma.qp_type; }

bool answers_reads(const CmId& id) { return type_of(id) == IBV_QPT_RC || type_of(id) == IBV_QPT_XRC_RECV; }

int fill_init(const CmId& id, ibv_qp_attr& attributes) {
  attributes.pkey_index = 0;
  attributes.port_num = id.rdma.port_num;
  if (type_of(id) == IBV_QPT_UD) {
    attributes.qkey = id.qkey;
    return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  }
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (answers_reads(id)) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

int fill_rtr(const CmId& id, ibv_qp_attr& attributes) {
  if (type_of(id) == IBV_QPT_UD) return IBV_QP_STATE;
  attributes.ah_attr = route_to_peer(id);
  const uint8_t mtu = id.peer.mtu != 0 ? std::min(id.peer.mtu, id.place.mtu) : id.place.mtu;
  attributes.path_mtu = static_cast<ibv_mtu>(std::clamp<uint8_t>(mtu, IBV_MTU_256, IBV_MTU_4096));
  attributes.dest_qp_num = id.peer.qpn;
  // Each end names the number with which the other begins (IBA 12.6.5, 12.6.8), not its own.
  attributes.rq_psn = id.first_psn;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (answers_reads(id)) {
    attributes.max_dest_rd_atomic = std::min<uint8_t>(id.responder_resources, verbs::kMaxQpRdAtom);
    attributes.min_rnr_timer = kRnrTimer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return mask;
}

int fill_rts(const CmId& id, ibv_qp_attr& attributes) {
  attributes.sq_psn = id.peer.first_psn;
  if (type_of(id) == IBV_QPT_UC || type_of(id) == IBV_QPT_UD) return IBV_QP_STATE | IBV_QP_SQ_PSN;
  const uint8_t told = id.peer.ack_timeout != 0 ? id.peer.ack_timeout : kDefaultAckTimeout;
  attributes.timeout = id.ack_timeout.value_or(told) & 0x1f;
  if (type_of(id) == IBV_QPT_XRC_RECV) return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  // The request names the retries of both ends.
  attributes.retry_cnt = (id.passive ? id.peer.retry_count : id.retry_count) & 7;
  attributes.rnr_retry = id.peer.rnr_retry_count & 7;
  attributes.max_rd_atomic = std::min<uint8_t>(id.initiator_depth, verbs::kMaxQpInitRdAtom);
  return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC;
}

base::Result<void> move_to(CmId& id, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  const int mask = state == IBV_QPS_INIT  ? fill_init(id, attributes)
                   : state == IBV_QPS_RTR ? fill_rtr(id, attributes)
                                          : fill_rts(id, attributes);
  return modify(id.rdma.qp, attributes, mask);
}

base::Result<void> fill_attributes(const CmId& id, ibv_qp_attr& attributes, int& mask) {
  if (auto ok = id.usable(); !ok) return ok;
  if (id.rdma.verbs == nullptr)
    return base::fail(EINVAL, "the RDMA CM id has no device yet: bind it, or resolve its address");
  switch (attributes.qp_state) {
    case IBV_QPS_INIT:
      mask = fill_init(id, attributes);
      return {};
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
      if (type_of(id) != IBV_QPT_UD && id.peer.qpn == 0)
        return base::fail(EINVAL, "the peer's queue pair isn't known before its request or reply came");
      mask = attributes.qp_state == IBV_QPS_RTR ? fill_rtr(id, attributes) : fill_rts(id, attributes);
      return {};
    default:
      return base::fail(EINVAL, "rdma_init_qp_attr knows the states INIT, RTR and RTS");
  }
}

}  // namespace

ibv_ah_attr route_to_peer(const CmId& id) {
  ibv_ah_attr route{};
  std::memcpy(route.grh.dgid.raw, id.remote.bytes, sizeof route.grh.dgid.raw);
  route.grh.sgid_index = static_cast<uint8_t>(id.place.index);
  route.grh.hop_limit = 64;
  route.grh.traffic_class = id.traffic_class;
  route.is_global = 1;
  route.port_num = id.rdma.port_num;
  return route;
}

base::Result<void> begin_qp(CmId& id) {
  if (auto done = move_to(id, IBV_QPS_INIT); !done || !id.datagrams()) return done;
  if (auto done = move_to(id, IBV_QPS_RTR); !done) return done;
  return move_to(id, IBV_QPS_RTS);
}

base::Result<void> connect_qp(CmId& id) {
  if (id.rdma.qp->state == IBV_QPS_RESET)
    if (auto done = move_to(id, IBV_QPS_INIT); !done) return done;
  if (auto done = move_to(id, IBV_QPS_RTR); !done) return done;
  return move_to(id, IBV_QPS_RTS);
}

void fail_qp(CmId& id) {
  if (id.rdma.qp == nullptr || id.datagrams()) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (auto done = modify(id.rdma.qp, attributes, IBV_QP_STATE); !done) base::explain(done.error());
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) noexcept {
  return abi::minus_one(
      abi::guarded([&] { return abi::fill_attributes(abi::CmId::from(id), *attr, *mask); }));
}
VERBENA_SAME_PROTOTYPE(rdma_init_qp_attr);
