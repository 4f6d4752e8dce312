#include "connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace verbena::migration {
namespace {

template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return made;
}

void must(int error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
}

ibv_gid gid_of(const std::string& address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  if (::inet_pton(AF_INET, address.c_str(), gid.raw + 12) != 1) throw std::runtime_error(address);
  return gid;
}

int index_of(ibv_context* context, uint8_t port, const std::string& address) {
  const ibv_gid wanted = gid_of(address);
  const auto end = std::chrono::steady_clock::now() + kSoon;  // it may have come back just now
  do
    for (int i = 0; i < 16; ++i) {
      ibv_gid gid{};
      if (ibv_query_gid(context, port, i, &gid) == 0 && std::memcmp(&gid, &wanted, sizeof gid) == 0) return i;
    }
  while (std::chrono::steady_clock::now() < end);
  throw std::runtime_error("no GID " + address);
}

}  // namespace

bool by_wire() {
  const char* path = std::getenv("VERBENA_PATH");
  return path != nullptr && std::string(path) == "wire";
}

ibv_ah_attr vector_of(ibv_context* context, const Way& way) {
  ibv_ah_attr vector{};
  vector.is_global = 1;
  vector.port_num = way.port;
  vector.grh.dgid = gid_of(way.to);
  vector.grh.sgid_index = static_cast<uint8_t>(index_of(context, way.port, way.from));
  vector.grh.hop_limit = 64;
  return vector;
}

End::End(ibv_qp_type type) : type_(type) {
  ibv_device** list = must(ibv_get_device_list(nullptr), "ibv_get_device_list");
  context_ = must(ibv_open_device(list[0]), "ibv_open_device");
  ibv_free_device_list(list);
  ::fcntl(context_->async_fd, F_SETFL, O_NONBLOCK);
  pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
  cq_ = must(ibv_create_cq(context_, 64, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.cap = {
      .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  qp_ = must(ibv_create_qp(pd_, &attr), "ibv_create_qp");
  mr_ = must(ibv_reg_mr(pd_, bytes_.data(), sizeof bytes_, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
}

End::~End() {
  EXPECT_EQ(ibv_destroy_qp(qp_), 0);
  EXPECT_EQ(ibv_dereg_mr(mr_), 0);
  EXPECT_EQ(ibv_destroy_cq(cq_), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  EXPECT_EQ(ibv_close_device(context_), 0);
}

void End::connect(const End& peer, ibv_qp_state until) {
  const bool reliable = type_ == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  must(modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qp_->qp_num;
  attr.ah_attr = vector_of(context_, kFirst);
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  must(modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
       "RTR");
  if (until == IBV_QPS_RTR) return;
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 2;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  must(modify(attr,
              IBV_QP_STATE | IBV_QP_SQ_PSN |
                  (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                            : 0)),
       "RTS");
}

int End::set(ibv_mig_state state) {
  ibv_qp_attr attr{};
  attr.path_mig_state = state;
  return modify(attr, IBV_QP_PATH_MIG_STATE);
}

int End::set(ibv_mig_state state, const Way& way) {
  ibv_qp_attr attr{};
  attr.path_mig_state = state;
  attr.alt_ah_attr = vector_of(context_, way);
  attr.alt_port_num = way.port;
  attr.alt_timeout = 15;
  return modify(attr, IBV_QP_PATH_MIG_STATE | IBV_QP_ALT_PATH);
}

int End::load(const Way& way) {
  ibv_qp_attr attr{};
  attr.alt_ah_attr = vector_of(context_, way);
  attr.alt_port_num = way.port;
  attr.alt_timeout = 15;
  return modify(attr, IBV_QP_ALT_PATH);
}

ibv_qp_attr End::attributes() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  must(ibv_query_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE, &init), "ibv_query_qp");
  return attr;
}

bool End::becomes(ibv_mig_state state) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (attributes().path_mig_state != state)
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

void End::post_receive() {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes_.data()), 64, mr_->lkey};
  ibv_recv_wr request{};
  request.wr_id = 1;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_recv(qp_, &request, &bad), "ibv_post_recv");
}

void End::post_send() {
  ibv_sge piece{reinterpret_cast<uint64_t>(bytes_.data()), 64, mr_->lkey};
  ibv_send_wr request{};
  request.wr_id = 2;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(qp_, &request, &bad), "ibv_post_send");
}

bool End::next(ibv_wc& completion, std::chrono::milliseconds wait) {
  const auto end = std::chrono::steady_clock::now() + wait;
  do
    if (ibv_poll_cq(cq_, 1, &completion) == 1) return true;
  while (std::chrono::steady_clock::now() < end);
  return false;
}

bool End::told(ibv_event_type type, std::chrono::milliseconds wait) {
  const auto end = std::chrono::steady_clock::now() + wait;
  do {
    pollfd ready{context_->async_fd, POLLIN, 0};
    (void)::poll(&ready, 1, 10);
    ibv_async_event event{};
    while (ibv_get_async_event(context_, &event) == 0) {
      const bool wanted = event.event_type == type;
      const bool ours = event.element.qp == qp_;
      ibv_ack_async_event(&event);
      if (wanted) return ours;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

testing::AssertionResult sends(End& from, End& to) {
  to.post_receive();
  from.post_send();
  ibv_wc completion{};
  if (!from.next(completion, kSoon) || completion.status != IBV_WC_SUCCESS)
    return testing::AssertionFailure() << "the send: " << ibv_wc_status_str(completion.status);
  if (!to.next(completion, kSoon) || completion.status != IBV_WC_SUCCESS)
    return testing::AssertionFailure() << "the receive: " << ibv_wc_status_str(completion.status);
  return testing::AssertionSuccess();
}

}  // namespace verbena::migration
