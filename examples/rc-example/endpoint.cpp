#include "rc-example/endpoint.hpp"

#include <algorithm>
#include <random>

namespace examples {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;

}  // namespace

Endpoint::Endpoint(const Place& place, const Options& options) : psn(std::random_device()() & kPsnMask) {
  ibv_context* const context = place.context.get();
  pd.reset(check_new("ibv_alloc_pd", ibv_alloc_pd(context)));
  const auto places = static_cast<int>(options.sq_depth + options.rq_depth);
  cq.reset(check_new("ibv_create_cq", ibv_create_cq(context, places, nullptr, nullptr, 0)));
  ibv_qp_init_attr wanted = {};
  wanted.send_cq = cq.get();
  wanted.recv_cq = cq.get();
  wanted.cap = {.max_send_wr = std::max(options.sq_depth, 2u),  // a WRITE and the SEND after it
                .max_recv_wr = options.rq_depth,
                .max_send_sge = options.sges,
                .max_recv_sge = options.sges,
                .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  qp.reset(check_new("ibv_create_qp", ibv_create_qp(pd.get(), &wanted)));
}

void Endpoint::to_init(const Place& place) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(place.choice.port);
  attributes.pkey_index = 0;
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  check("ibv_modify_qp, INIT",
        ibv_modify_qp(qp.get(), &attributes,
                      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
}

void Endpoint::connect(const Place& place, const Card& peer) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(place.port.active_mtu, static_cast<ibv_mtu>(peer.mtu));
  attributes.dest_qp_num = peer.qpn;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.port_num = static_cast<uint8_t>(place.choice.port);
  attributes.ah_attr.is_global = 1;  // RoCE always, InfiniBand between subnets
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(place.choice.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  check("ibv_modify_qp, RTR",
        ibv_modify_qp(qp.get(), &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn;
  attributes.timeout = 14;  // 67 ms
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  check("ibv_modify_qp, RTS", ibv_modify_qp(qp.get(), &attributes,
                                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

Card Endpoint::card(const Place& place, const Options& options, const Regions& regions) const {
  return {qp->qp_num,
          psn,
          place.port.lid,
          place.gid,
          static_cast<uint8_t>(place.port.active_mtu),
          {options.count, options.size},
          regions};
}

}  // namespace examples
