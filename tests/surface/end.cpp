#include "end.hpp"

#include <stdexcept>
#include <string>

namespace verbena::surface {

ibv_context* device() {
  static ibv_context* opened = [] {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    if (context == nullptr) throw std::runtime_error("no device");
    return context;
  }();
  return opened;
}

namespace {

ibv_cq* make_cq(const EndSpec& spec) {
  if (spec.wc_flags == 0 && spec.cq_flags == 0)
    return ibv_create_cq(device(), spec.cqe, nullptr, spec.channel, 0);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(spec.cqe);
  attr.channel = spec.channel;
  attr.wc_flags = spec.wc_flags;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = spec.cq_flags;
  ibv_cq_ex* made = ibv_create_cq_ex(device(), &attr);
  return made != nullptr ? ibv_cq_ex_to_cq(made) : nullptr;
}

}  // namespace

End::End(const EndSpec& spec) : own_pd_(spec.pd == nullptr), own_cq_(spec.cq == nullptr) {
  pd_ = own_pd_ ? ibv_alloc_pd(device()) : spec.pd;
  cq_ = own_cq_ ? make_cq(spec) : spec.cq;
  EXPECT_NE(nullptr, cq_) << strerror(errno);
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.cap = spec.caps;
  attr.qp_type = IBV_QPT_RC;
  attr.pd = pd_;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.send_ops_flags = spec.send_ops;
  if (spec.send_ops != 0) attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  qp_ = ibv_create_qp_ex(device(), &attr);
  if (qp_ == nullptr) {
    const std::string why = std::string("no queue pair: ") + strerror(errno);
    EXPECT_EQ(0, own_cq_ ? ibv_destroy_cq(cq_) : 0);
    EXPECT_EQ(0, own_pd_ ? ibv_dealloc_pd(pd_) : 0);
    throw std::runtime_error(why);
  }
  mr_ = ibv_reg_mr(pd_, bytes_.data(), bytes_.size(), kAccess);
}

End::~End() {
  EXPECT_EQ(0, ibv_destroy_qp(qp_));
  EXPECT_EQ(0, ibv_dereg_mr(mr_));
  EXPECT_EQ(0, own_cq_ ? ibv_destroy_cq(cq_) : 0);
  EXPECT_EQ(0, own_pd_ ? ibv_dealloc_pd(pd_) : 0);
}

int End::post_send(uint64_t wr_id, ibv_wr_opcode opcode, size_t at, uint32_t length) {
  ibv_sge one = piece(at, length);
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &request, &bad);
}

void End::receive(uint64_t wr_id, size_t at, uint32_t length) {
  ibv_sge one = piece(at, length);
  ibv_recv_wr request{.wr_id = wr_id, .next = nullptr, .sg_list = &one, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(0, ibv_post_recv(qp_, &request, &bad));
}

bool End::next(ibv_wc& completion, std::chrono::milliseconds wait) {
  const auto until = std::chrono::steady_clock::now() + wait;
  do {
    if (ibv_poll_cq(cq_, 1, &completion) == 1) return true;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

testing::AssertionResult End::next_is(uint64_t wr_id, ibv_wc_status status) {
  ibv_wc completion{};
  if (!next(completion)) return testing::AssertionFailure() << "no completion came";
  if (completion.wr_id == wr_id && completion.status == status) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << completion.wr_id << ", "
                                     << ibv_wc_status_str(completion.status);
}

testing::AssertionResult End::empty() {
  ibv_wc completion{};
  if (!next(completion, std::chrono::milliseconds(40))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << completion.wr_id << " completed";
}

ibv_qp_state End::state() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(0, ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init));
  return attr.qp_state;
}

int to_rts(ibv_qp* qp, uint32_t peer_qpn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  if (const int error =
          ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return error;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer_qpn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  if (ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) != 0) return errno;
  if (const int error = ibv_modify_qp(qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return error;
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 18;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect(End& a, End& b) {
  ASSERT_EQ(0, to_rts(a.qp(), b.qp()->qp_num));
  ASSERT_EQ(0, to_rts(b.qp(), a.qp()->qp_num));
}

}  // namespace verbena::surface
