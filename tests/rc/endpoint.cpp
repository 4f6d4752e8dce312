#include "endpoint.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace verbena::rc {
namespace {

template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return made;
}

bool readable(int fd, Wait wait) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(wait.count())) > 0;
}

ibv_send_wr request_of(const SendOrder& order) {
  ibv_send_wr request{};
  request.wr_id = order.wr_id;
  request.sg_list = const_cast<ibv_sge*>(order.pieces.list.data());
  request.num_sge = static_cast<int>(order.pieces.count);
  request.opcode = order.opcode;
  request.send_flags = order.flags;
  request.imm_data = order.imm;
  if (order.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || order.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = order.remote_address;
    request.wr.atomic.rkey = order.rkey;
    request.wr.atomic.compare_add = order.compare_add;
    request.wr.atomic.swap = order.swap;
  } else {
    request.wr.rdma.remote_addr = order.remote_address;
    request.wr.rdma.rkey = order.rkey;
  }
  return request;
}

ibv_recv_wr request_of(const ReceiveOrder& order) {
  ibv_recv_wr request{};
  request.wr_id = order.wr_id;
  request.sg_list = const_cast<ibv_sge*>(order.pieces.list.data());
  request.num_sge = static_cast<int>(order.pieces.count);
  return request;
}

template <typename Request, typename Order, typename Post>
Posted post_list(ibv_qp* qp, const Orders<Order>& orders, Post post) {
  std::array<Request, 8> requests{};
  for (uint32_t i = 0; i < orders.count; ++i) {
    requests.at(i) = request_of(orders.list.at(i));
    if (i > 0) requests.at(i - 1).next = &requests.at(i);
  }
  Request* bad = nullptr;
  Posted posted{.error = post(qp, requests.data(), &bad)};
  if (bad != nullptr) posted.bad = static_cast<int>(bad - requests.data());
  return posted;
}

}  // namespace

ibv_context* open_device() {
  int count = 0;
  ibv_device** list = must(ibv_get_device_list(&count), "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (std::string(ibv_get_device_name(list[i])) == "verbena0") context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  return must(context, "ibv_open_device(verbena0)");
}

Endpoint::Endpoint(const EndpointSpec& spec) {
  context_ = open_device();
  pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
  other_pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
  if (spec.channel) channel_ = must(ibv_create_comp_channel(context_), "ibv_create_comp_channel");
  send_cq_ = must(ibv_create_cq(context_, spec.send_cqe, this, channel_, 0), "ibv_create_cq");
  recv_cq_ = spec.one_queue
                 ? send_cq_
                 : must(ibv_create_cq(context_, spec.recv_cqe, this, channel_, 0), "ibv_create_cq");
  ibv_qp_init_attr init{.qp_context = this,
                        .send_cq = send_cq_,
                        .recv_cq = recv_cq_,
                        .srq = nullptr,
                        .cap = spec.caps,
                        .qp_type = IBV_QPT_RC,
                        .sq_sig_all = spec.signal_all ? 1 : 0};
  qp_ = must(ibv_create_qp(pd_, &init), "ibv_create_qp");
  caps_ = init.cap;
}

Endpoint::~Endpoint() { close(); }

Closed Endpoint::close() {
  Closed closed;
  const auto note = [&](const char* what, int error) {
    if (closed.error == 0 && error != 0) closed = {error, {}};
    if (closed.error != 0 && closed.what[0] == '\0')
      std::strncpy(closed.what.data(), what, closed.what.size() - 1);
  };
  note("ibv_destroy_qp", destroy_qp());
  for (const auto& [id, window] : windows_) note("ibv_dealloc_mw", ibv_dealloc_mw(window));
  windows_.clear();
  for (auto& [id, buffer] : buffers_)
    if (buffer.mr != nullptr) note("ibv_dereg_mr", ibv_dereg_mr(buffer.mr));
  buffers_.clear();
  if (recv_cq_ == send_cq_) recv_cq_ = nullptr;
  for (ibv_cq** cq : {&send_cq_, &recv_cq_})
    if (*cq != nullptr) note("ibv_destroy_cq", ibv_destroy_cq(std::exchange(*cq, nullptr)));
  if (channel_ != nullptr)
    note("ibv_destroy_comp_channel", ibv_destroy_comp_channel(std::exchange(channel_, nullptr)));
  for (ibv_pd** pd : {&other_pd_, &pd_})
    if (*pd != nullptr) note("ibv_dealloc_pd", ibv_dealloc_pd(std::exchange(*pd, nullptr)));
  if (context_ != nullptr) note("ibv_close_device", ibv_close_device(std::exchange(context_, nullptr)));
  return closed;
}

int Endpoint::destroy_qp() { return qp_ == nullptr ? 0 : ibv_destroy_qp(std::exchange(qp_, nullptr)); }

Address Endpoint::address() {
  Address address{.qpn = qp_->qp_num};
  if (ibv_query_gid(context_, 1, 0, &address.gid) != 0) throw std::runtime_error("ibv_query_gid");
  return address;
}

ibv_qp_cap Endpoint::caps() { return caps_; }

int Endpoint::to_init(const Link& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = link.access;
  return ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int Endpoint::to_rtr(const Link& link) {
  ibv_qp_attr attr{};
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
  return ibv_modify_qp(qp_, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int Endpoint::to_rts(const Link& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = link.sq_psn;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retry_cnt;
  attr.rnr_retry = link.rnr_retry;
  attr.max_rd_atomic = link.max_rd_atomic;
  return ibv_modify_qp(qp_, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

int Endpoint::to_state(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
}

int Endpoint::set_min_rnr_timer(uint8_t code) {
  ibv_qp_attr attr{};
  attr.min_rnr_timer = code;
  return ibv_modify_qp(qp_, &attr, IBV_QP_MIN_RNR_TIMER);
}

ibv_qp_attr Endpoint::query() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init); error != 0)
    throw std::runtime_error(std::string("ibv_query_qp: ") + std::strerror(error));
  return attr;
}

Buffer Endpoint::add_buffer(const BufferSpec& spec) {
  Registered made{.memory = Memory(spec.length, spec.backing)};
  Buffer buffer{
      .id = ++last_buffer_, .address = reinterpret_cast<uint64_t>(made.memory.data()), .length = spec.length};
  made.mr = ibv_reg_mr(spec.other_domain ? other_pd_ : pd_, made.memory.data(), spec.length, spec.access);
  if (made.mr == nullptr) {
    buffer.error = static_cast<uint32_t>(errno);
  } else {
    buffer.lkey = made.mr->lkey;
    buffer.rkey = made.mr->rkey;
  }
  buffers_.emplace(buffer.id, std::move(made));
  return buffer;
}

Buffer Endpoint::share(const Buffer& other) {
  Registered made;
  made.mr =
      must(ibv_reg_mr(pd_, reinterpret_cast<void*>(other.address), other.length, kAllAccess), "ibv_reg_mr");
  Buffer buffer = other;
  buffer.id = ++last_buffer_;
  buffer.lkey = made.mr->lkey;
  buffer.rkey = made.mr->rkey;
  buffers_.emplace(buffer.id, std::move(made));
  return buffer;
}

int Endpoint::deregister(uint32_t id) {
  const int error = ibv_dereg_mr(buffers_.at(id).mr);
  if (error == 0) buffers_.at(id).mr = nullptr;
  return error;
}

int Endpoint::unmap(uint32_t id, uint64_t offset, uint64_t length) {
  return buffers_.at(id).memory.unmap(offset, length);
}

void Endpoint::fill(uint32_t id, uint64_t offset, uint64_t length, uint64_t seed) {
  fill_pattern(buffers_.at(id).memory.data() + offset, length, seed);
}

int64_t Endpoint::mismatch(uint32_t id, uint64_t offset, uint64_t length, uint64_t seed) {
  return pattern_mismatch(buffers_.at(id).memory.data() + offset, length, seed);
}

uint64_t Endpoint::word(uint32_t id, uint64_t offset) {
  return __atomic_load_n(reinterpret_cast<uint64_t*>(buffers_.at(id).memory.data() + offset),
                         __ATOMIC_ACQUIRE);
}

void Endpoint::set_word(uint32_t id, uint64_t offset, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(buffers_.at(id).memory.data() + offset), value,
                   __ATOMIC_RELEASE);
}

Posted Endpoint::post_sends(const Orders<SendOrder>& orders) {
  return post_list<ibv_send_wr>(qp_, orders, ibv_post_send);
}

Posted Endpoint::post_receives(const Orders<ReceiveOrder>& orders) {
  return post_list<ibv_recv_wr>(qp_, orders, ibv_post_recv);
}

uint64_t Endpoint::blast(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const bool last = i % 16 == 15 || i + 1 == count;
    const SendOrder order{.wr_id = i, .flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u};
    if (post_sends({order}).error != 0) return i;
    if (last) {
      const Completions done = poll(Queue::kSend, 1, kSoon);
      if (done.count != 1 || done.list[0].status != IBV_WC_SUCCESS) return i;
    }
    for (uint64_t spin = 0; spin < i % 97 * 40; ++spin) asm volatile("");
  }
  return count;
}

uint64_t Endpoint::answer(uint64_t count, const Buffer& buffer, uint64_t length, Answerer answerer) {
  Pieces pieces;
  if (length > 0) pieces.add(buffer.piece(0, length));
  std::atomic<uint64_t> received = 0;
  std::atomic<bool> over = false;
  uint64_t answered = 0;
  const auto post_one = [&] {
    if (post_sends({SendOrder{.wr_id = answered, .pieces = pieces}}).error != 0) return false;
    ++answered;
    return true;
  };
  std::thread other([&] {
    while (answerer == Answerer::kOtherThread && answered < count && !over.load())
      if (received.load() == answered)
        ::sched_yield();
      else if (!post_one())
        return;
  });
  for (uint64_t ended = 0; ended < count;) {
    const Completions next = poll(Queue::kReceive, 1, kSoon);
    if (next.count != 1 || next.list[0].status != IBV_WC_SUCCESS) break;
    if ((next.list[0].opcode & IBV_WC_RECV) == 0) {
      ++ended;
      continue;
    }
    if (post_receives({ReceiveOrder{.pieces = pieces}}).error != 0) break;
    ++received;
    if (answerer == Answerer::kPoller && !post_one()) break;
  }
  over = true;
  other.join();
  return answered;
}

Completions Endpoint::poll(Queue queue, int count, Wait wait) {
  Completions found;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  const int most = static_cast<int>(found.list.size());
  for (;;) {
    const int got =
        ibv_poll_cq(cq(queue), std::min(count, most) - found.count, found.list.data() + found.count);
    if (got < 0) {
      found.error = got;
      return found;
    }
    found.count += got;
    if (found.count >= std::min(count, most) || std::chrono::steady_clock::now() >= deadline) return found;
    if (got == 0) ::sched_yield();
  }
}

Event Endpoint::next_event(Wait wait) {
  ibv_async_event taken{};
  if (!readable(context_->async_fd, wait) || ibv_get_async_event(context_, &taken) != 0) return {};
  Event event{.came = true, .type = taken.event_type};
  event.own = taken.event_type == IBV_EVENT_CQ_ERR
                  ? taken.element.cq == send_cq_ || taken.element.cq == recv_cq_
                  : taken.element.qp == qp_;
  ibv_ack_async_event(&taken);
  return event;
}

int Endpoint::arm(Queue queue, bool solicited_only) {
  return ibv_req_notify_cq(cq(queue), solicited_only ? 1 : 0);
}

ChannelEvent Endpoint::next_channel_event(Wait wait) {
  if (!readable(channel_->fd, wait)) return {};
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &cq, &context) != 0) return {.error = errno};
  ibv_ack_cq_events(cq, 1);
  return {.came = context == this, .queue = cq == send_cq_ ? Queue::kSend : Queue::kReceive};
}

}  // namespace verbena::rc
