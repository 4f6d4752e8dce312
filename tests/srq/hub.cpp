#include "hub.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>

namespace verbena::srq {
namespace {

template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return made;
}

void modified(int error, ibv_qp_state state) {
  EXPECT_EQ(0, error) << "to state " << static_cast<int>(state) << ": " << std::strerror(error);
}

}  // namespace

Hub::Hub(const HubSpec& spec) : spec_(spec), memory_(spec.bytes) {
  context_ = rc::open_device();
  pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
  cq_ = must(ibv_create_cq(context_, spec.cqe, nullptr, nullptr, 0), "ibv_create_cq");
  mr_ = must(ibv_reg_mr(pd_, memory_.data(), memory_.size(), rc::kAllAccess), "ibv_reg_mr");
  EXPECT_EQ(0, ibv_query_gid(context_, 1, 0, &gid_));
  if (spec.max_wr == 0) return;
  ibv_srq_init_attr init{.srq_context = this,
                         .attr = {.max_wr = spec.max_wr, .max_sge = spec.max_sge, .srq_limit = 0}};
  srq_ = must(ibv_create_srq(pd_, &init), "ibv_create_srq");
}

Hub::~Hub() {
  while (!qps_.empty()) destroy(qps_.back());
  if (srq_ != nullptr) {
    EXPECT_EQ(0, ibv_destroy_srq(srq_));
  }
  EXPECT_EQ(0, ibv_destroy_cq(cq_));
  EXPECT_EQ(0, ibv_dereg_mr(mr_));
  EXPECT_EQ(0, ibv_dealloc_pd(pd_));
  EXPECT_EQ(0, ibv_close_device(context_));
}

void Hub::destroy(ibv_qp* qp) {
  EXPECT_EQ(0, ibv_destroy_qp(qp));
  std::erase(qps_, qp);
}

ibv_qp* Hub::add_qp() {
  ibv_qp_init_attr init{.qp_context = this,
                        .send_cq = cq_,
                        .recv_cq = cq_,
                        .srq = srq_,
                        .cap = {.max_send_wr = 64,
                                .max_recv_wr = 64,
                                .max_send_sge = 4,
                                .max_recv_sge = 4,
                                .max_inline_data = 64},
                        .qp_type = spec_.type,
                        .sq_sig_all = 1};
  qps_.push_back(must(ibv_create_qp(pd_, &init), "ibv_create_qp"));
  return qps_.back();
}

int Hub::to_state(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state Hub::state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(0, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
  return attr.qp_state;
}

void Hub::bring_up(Hub& hub, ibv_qp* qp, const rc::Link& link) {
  const ibv_qp_type type = hub.spec_.type;
  const bool reliable = type == IBV_QPT_RC;
  const bool connected = type != IBV_QPT_UD;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.qp_access_flags = link.access & (reliable ? ~0u : unsigned{IBV_ACCESS_REMOTE_WRITE});
  modified(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                             (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)),
           attr.qp_state);
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = link.peer_qpn;
  attr.rq_psn = link.rq_psn;
  attr.max_dest_rd_atomic = link.max_dest_rd_atomic;
  attr.min_rnr_timer = link.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = link.peer;
  attr.ah_attr.grh.hop_limit = 64;
  modified(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE |
                             (connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
                             (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
           attr.qp_state);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = link.sq_psn;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retry_cnt;
  attr.rnr_retry = link.rnr_retry;
  attr.max_rd_atomic = link.max_rd_atomic;
  modified(ibv_modify_qp(
               qp, &attr,
               IBV_QP_STATE | IBV_QP_SQ_PSN |
                   (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                             : 0)),
           attr.qp_state);
}

void Hub::connect(Hub& a, ibv_qp* of_a, Hub& b, ibv_qp* of_b, const rc::Link& link) {
  rc::Link to_b = link;
  to_b.peer = b.gid_;
  to_b.peer_qpn = of_b->qp_num;
  to_b.rq_psn = 0xfffff0;
  to_b.sq_psn = 5;
  rc::Link to_a = link;
  to_a.peer = a.gid_;
  to_a.peer_qpn = of_a->qp_num;
  to_a.rq_psn = 5;
  to_a.sq_psn = 0xfffff0;
  bring_up(a, of_a, to_b);
  bring_up(b, of_b, to_a);
}

void Hub::connect(ibv_qp* ours, rc::Side& peer, const rc::Link& link) {
  const rc::Address there = peer.address();
  rc::Link to_them = link;
  to_them.peer = there.gid;
  to_them.peer_qpn = there.qpn;
  to_them.rq_psn = 0xfffff0;
  to_them.sq_psn = 5;
  rc::Link to_us = link;
  to_us.peer = gid_;
  to_us.peer_qpn = ours->qp_num;
  to_us.rq_psn = 5;
  to_us.sq_psn = 0xfffff0;
  bring_up(*this, ours, to_them);
  EXPECT_EQ(0, peer.to_init(to_us));
  EXPECT_EQ(0, peer.to_rtr(to_us));
  EXPECT_EQ(0, peer.to_rts(to_us));
}

int Hub::post_shared(uint64_t wr_id, size_t at, uint32_t length) {
  ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data() + at), length, mr_->lkey};
  ibv_recv_wr request{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq_, &request, &bad);
}

int Hub::send(ibv_qp* qp, uint64_t wr_id, size_t at, uint32_t length, ibv_ah* ah, uint32_t target) {
  ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data() + at), length, mr_->lkey};
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  if (ah != nullptr) {
    request.wr.ud.ah = ah;
    request.wr.ud.remote_qpn = target;
    request.wr.ud.remote_qkey = kQkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

ibv_wc Hub::next(Wait wait) {
  const auto end = std::chrono::steady_clock::now() + wait;
  ibv_wc completion{};
  do {
    if (ibv_poll_cq(cq_, 1, &completion) == 1) return completion;
    ::sched_yield();
  } while (std::chrono::steady_clock::now() < end);
  completion.status = rc::kNone;
  return completion;
}

testing::AssertionResult Hub::next_is(uint64_t wr_id, ibv_wc_status status, uint32_t qpn) {
  const ibv_wc got = next();
  if (got.status == status && got.wr_id == wr_id && got.qp_num == qpn) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << got.wr_id << ", status " << got.status << ", QP 0x"
                                     << std::hex << got.qp_num << " instead of " << std::dec << wr_id << ", "
                                     << status << ", 0x" << std::hex << qpn;
}

testing::AssertionResult Hub::nothing_comes(Wait wait) {
  const ibv_wc got = next(wait);
  if (got.status == rc::kNone) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << got.wr_id << ", status " << got.status;
}

testing::AssertionResult Hub::event_is(ibv_event_type type, const void* about) {
  pollfd ready{context_->async_fd, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(rc::soon().count())) <= 0)
    return testing::AssertionFailure() << "no event came";
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return testing::AssertionFailure() << std::strerror(errno);
  const bool right = event.event_type == type && event.element.srq == about;
  ibv_ack_async_event(&event);
  if (right) return testing::AssertionSuccess();
  return testing::AssertionFailure() << ibv_event_type_str(event.event_type) << " about "
                                     << event.element.srq;
}

testing::AssertionResult Hub::no_event(Wait wait) {
  pollfd ready{context_->async_fd, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(wait.count())) <= 0) return testing::AssertionSuccess();
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return testing::AssertionFailure() << std::strerror(errno);
  ibv_ack_async_event(&event);
  return testing::AssertionFailure() << ibv_event_type_str(event.event_type);
}

void Hub::fill(size_t at, size_t length, uint64_t seed) {
  rc::fill_pattern(memory_.data() + at, length, seed);
}

int64_t Hub::mismatch(size_t at, size_t length, uint64_t seed) const {
  return rc::pattern_mismatch(memory_.data() + at, length, seed);
}

}  // namespace verbena::srq
