#include "end.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace verbena::unreliable {
namespace {

template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return made;
}

void must(int error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
}

uint8_t pattern(size_t place, uint8_t seed) { return static_cast<uint8_t>(seed + place * 7 + place / 251); }

}  // namespace

ibv_context* device() {
  static ibv_context* const context = [] {
    ibv_device** list = must(ibv_get_device_list(nullptr), "ibv_get_device_list");
    ibv_context* opened = must(ibv_open_device(list[0]), "ibv_open_device");
    ibv_free_device_list(list);
    return opened;
  }();
  return context;
}

int gid_index(const std::string& address) {
  in6_addr wanted{};
  if (::inet_pton(AF_INET6, address.c_str(), &wanted) != 1) return -1;
  for (int i = 0; i < 16; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(device(), 1, i, &gid) == 0 && std::memcmp(&gid, &wanted, sizeof gid) == 0) return i;
  }
  return -1;
}

End::End(ibv_qp_type type, int gid, ibv_pd* domain)
    : type_(type), gid_index_(gid), pd_(domain), own_pd_(domain == nullptr) {
  must(ibv_query_gid(device(), 1, gid, &gid_), "ibv_query_gid");
  if (own_pd_) pd_ = must(ibv_alloc_pd(device()), "ibv_alloc_pd");
  cq_ = must(ibv_create_cq(device(), 1024, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.cap = {
      .max_send_wr = 256, .max_recv_wr = 256, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 128};
  attr.qp_type = type;
  qp_ = must(ibv_create_qp(pd_, &attr), "ibv_create_qp");
  memory_ = std::make_unique<std::byte[]>(kBufferBytes);
  mr_ = must(ibv_reg_mr(pd_, memory_.get(), kBufferBytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND),
             "ibv_reg_mr");
}

End::~End() {
  EXPECT_EQ(ibv_destroy_qp(qp_), 0);
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  EXPECT_EQ(ibv_destroy_cq(cq_), 0);
  if (own_pd_) {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
}

void End::ready_datagrams(uint32_t qkey) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
  attr.qp_state = IBV_QPS_RTR;
  must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), "RTR");
  attr.qp_state = IBV_QPS_RTS;
  must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
}

void End::connect(End& peer, ibv_mtu mtu) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
       "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu;
  attr.dest_qp_num = peer.number();
  attr.rq_psn = 77;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid();
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  const bool reliable = type_ == IBV_QPT_RC;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  must(ibv_modify_qp(qp_, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
       "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 77;
  attr.max_rd_atomic = 1;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  const int requester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (reliable ? requester : 0)), "RTS");
}

int End::to_rts() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
}

ibv_qp_state End::state() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  must(ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
  return attr.qp_state;
}

int End::post(const Message& message) {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes() + message.at), message.length,
                message.lkey != 0 ? message.lkey : mr_->lkey};
  ibv_send_wr request{};
  request.wr_id = message.wr_id;
  request.sg_list = &piece;
  request.num_sge = message.length != 0 ? 1 : 0;
  request.opcode = message.opcode;
  request.send_flags = message.flags;
  request.imm_data = message.imm;
  if (type_ == IBV_QPT_UD) {
    request.wr.ud = {message.ah, message.target, message.qkey};
  } else if (message.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || message.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = message.remote_address;
    request.wr.atomic.rkey = message.rkey;
  } else {
    request.wr.rdma = {message.remote_address, message.rkey};
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_, &request, &bad);
  EXPECT_EQ(bad, error != 0 ? &request : nullptr);
  return error;
}

void End::receive(uint64_t wr_id, size_t at, uint32_t length) {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes() + at), length, mr_->lkey};
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_recv(qp_, &request, &bad), "ibv_post_recv");
}

bool End::next(ibv_wc& completion, std::chrono::milliseconds wait) {
  const auto end = std::chrono::steady_clock::now() + wait;
  do {
    if (ibv_poll_cq(cq_, 1, &completion) == 1) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

testing::AssertionResult End::next_is(uint64_t wr_id, ibv_wc_status status) {
  ibv_wc completion{};
  if (!next(completion)) return testing::AssertionFailure() << "nothing came";
  if (completion.wr_id == wr_id && completion.status == status && completion.qp_num == number())
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << completion.wr_id << ": "
                                     << ibv_wc_status_str(completion.status);
}

testing::AssertionResult End::nothing_comes() {
  ibv_wc completion{};
  if (!next(completion, kMoment)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "wr_id " << completion.wr_id << ": "
                                     << ibv_wc_status_str(completion.status);
}

ibv_ah* End::handle_to(const End& peer) const {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = peer.gid();
  attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  return must(ibv_create_ah(pd_, &attr), "ibv_create_ah");
}

void End::fill(size_t at, size_t length, uint8_t seed) {
  for (size_t i = 0; i < length; ++i) memory_[at + i] = std::byte{pattern(i, seed)};
}

bool End::holds(size_t at, size_t length, uint8_t seed) const {
  for (size_t i = 0; i < length; ++i)
    if (memory_[at + i] != std::byte{pattern(i, seed)}) return false;
  return true;
}

}  // namespace verbena::unreliable
