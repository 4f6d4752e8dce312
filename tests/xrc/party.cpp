#include "party.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace verbena::xrc {
namespace {

ibv_wc next(ibv_cq* cq, int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  ibv_wc completion{};
  do {
    if (ibv_poll_cq(cq, 1, &completion) == 1) return completion;
    ::usleep(20);
  } while (std::chrono::steady_clock::now() < end);
  completion.status = kNothing;
  return completion;
}

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

Party::Party(int fd) : bytes_(kBytes) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (count > 0) context_ = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context_ == nullptr) return;
  pd_ = ibv_alloc_pd(context_);
  send_cq_ = ibv_create_cq(context_, 128, nullptr, nullptr, 0);
  cq_ = ibv_create_cq(context_, 128, nullptr, nullptr, 0);
  mr_ = ibv_reg_mr(pd_, bytes_.data(), bytes_.size(), kAccess);
  ibv_xrcd_init_attr domain{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = O_CREAT};
  domain_ = ibv_open_xrcd(context_, &domain);
  if (domain_ == nullptr) return;
  ibv_srq_init_attr_ex init{};
  init.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = pd_;
  init.xrcd = domain_;
  init.cq = cq_;
  srq_ = ibv_create_srq_ex(context_, &init);
}

Party::~Party() {
  const auto destroy = [](auto* object, auto function) {
    if (object == nullptr) return;
    EXPECT_EQ(0, function(object));
  };
  for (ibv_qp* qp : queue_pairs_) destroy(qp, ibv_destroy_qp);
  destroy(srq_, ibv_destroy_srq);
  destroy(domain_, ibv_close_xrcd);
  destroy(mr_, [](ibv_mr* mr) { return ibv_dereg_mr(mr); });
  destroy(cq_, ibv_destroy_cq);
  destroy(send_cq_, ibv_destroy_cq);
  destroy(pd_, ibv_dealloc_pd);
  destroy(context_, ibv_close_device);
}

uint32_t Party::srq_number() const {
  uint32_t number = 0;
  EXPECT_EQ(0, ibv_get_srq_num(srq_, &number));
  return number;
}

ibv_qp* Party::make_initiator() {
  ibv_qp_init_attr_ex init{};
  init.send_cq = send_cq_;
  init.cap.max_send_wr = 64;
  init.cap.max_send_sge = 1;
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd_;
  init.sq_sig_all = 1;
  ibv_qp* qp = ibv_create_qp_ex(context_, &init);
  if (qp != nullptr) queue_pairs_.push_back(qp);
  return qp;
}

ibv_qp* Party::make_target() {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = domain_;
  ibv_qp* qp = ibv_create_qp_ex(context_, &init);
  if (qp != nullptr) queue_pairs_.push_back(qp);
  return qp;
}

ibv_qp* Party::open_target(uint32_t number) {
  ibv_qp_open_attr open{.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                        .qp_num = number,
                        .xrcd = domain_,
                        .qp_context = nullptr,
                        .qp_type = IBV_QPT_XRC_RECV};
  ibv_qp* qp = ibv_open_qp(context_, &open);
  if (qp != nullptr) queue_pairs_.push_back(qp);
  return qp;
}

int Party::connect(ibv_qp* qp, uint32_t peer) const {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  if (const int error =
          ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0)
    return error;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.rq_psn = kPsn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 1;
  EXPECT_EQ(0, ibv_query_gid(context_, 1, 0, &attr.ah_attr.grh.dgid));
  // The bits of the side that it doesn't have are overlooked, as by the kernel: programs give them.
  if (const int error = ibv_modify_qp(qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0)
    return error;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = kPsn;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

int Party::post_receive(uint64_t id, uint32_t offset, uint32_t length) {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes_.data()) + offset, length, mr_->lkey};
  ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq_, &wr, &bad);
}

int Party::post(ibv_qp* qp, uint64_t id, const Request& request) {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes_.data()) + request.offset, request.length, mr_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = request.opcode;
  wr.imm_data = 0x01020304;
  wr.qp_type.xrc.remote_srqn = request.srq;
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {
        .remote_addr = request.address, .compare_add = request.add, .swap = 0, .rkey = request.rkey};
  } else {
    wr.wr.rdma = {.remote_addr = request.address, .rkey = request.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

ibv_wc Party::sent(int milliseconds) { return next(send_cq_, milliseconds); }
ibv_wc Party::received(int milliseconds) { return next(cq_, milliseconds); }

}  // namespace verbena::xrc
