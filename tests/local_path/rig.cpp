#include "local_path/rig.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace verbena::local_path {
namespace {

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

std::ostream& operator<<(std::ostream& out, const Address& address) {
  out << address.qpn << ' ' << address.psn << ' ';
  for (const uint8_t byte : address.gid.raw) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    out << digits;
  }
  return out;
}

std::istream& operator>>(std::istream& in, Address& address) {
  std::string gid;
  in >> address.qpn >> address.psn >> gid;
  for (size_t i = 0; i < sizeof address.gid.raw && 2 * i + 2 <= gid.size(); ++i)
    address.gid.raw[i] = static_cast<uint8_t>(std::strtoul(gid.substr(2 * i, 2).c_str(), nullptr, 16));
  return in;
}

Memory map_memory(size_t size, bool shared) {
  Memory memory{.size = size};
  if (shared) {
    memory.file = ::memfd_create("rc_worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory.file < 0 || ::ftruncate(memory.file, static_cast<off_t>(size)) != 0 ||
        ::fcntl(memory.file, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      std::abort();
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, memory.file, 0);
  if (data == MAP_FAILED) std::abort();
  memory.data = static_cast<std::byte*>(data);
  return memory;
}

void unmap(Memory& memory) {
  if (memory.data != nullptr) ::munmap(memory.data, memory.size);
  if (memory.file >= 0) ::close(memory.file);
  memory.data = nullptr;
  memory.file = -1;
}

Rig Rig::open() {
  Rig rig;
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  rig.context_ = devices != nullptr && count > 0 ? ibv_open_device(devices[0]) : nullptr;
  if (devices != nullptr) ibv_free_device_list(devices);
  if (rig.context_ != nullptr) rig.domain_ = ibv_alloc_pd(rig.context_);
  if (rig.domain_ == nullptr || ibv_query_gid(rig.context_, 1, 0, &rig.gid_) != 0) {
    std::cout << "refused " << errno << std::endl;
    std::exit(1);
  }
  return rig;
}

int Rig::register_memory(Memory& memory) const {
  memory.mr = ibv_reg_mr(domain_, memory.data, memory.size, kAccess);
  return memory.mr != nullptr ? 0 : errno;
}

int Rig::make_queue(int entries, bool channel, Queue& queue) const {
  if (channel && (queue.channel = ibv_create_comp_channel(context_)) == nullptr) return errno;
  queue.cq = ibv_create_cq(context_, entries, nullptr, queue.channel, 0);
  return queue.cq != nullptr ? 0 : errno;
}

int Rig::make_pair(const Queue& queue, unsigned depth, ibv_qp*& pair) const {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue.cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  wanted.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1};
  pair = ibv_create_qp(domain_, &wanted);
  return pair != nullptr ? 0 : errno;
}

int move_to(ibv_qp* pair, ibv_qp_state state) {
  ibv_qp_attr wanted{};
  wanted.qp_state = state;
  return ibv_modify_qp(pair, &wanted, IBV_QP_STATE);
}

int Rig::connect(ibv_qp* pair, uint32_t own_psn, const Address& peer, const Rules& rules,
                 const char*& step) const {
  step = "RESET";
  if (int error = move_to(pair, IBV_QPS_RESET); error != 0) return error;
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.port_num = 1;
  wanted.qp_access_flags = kAccess;
  step = "INIT";
  if (int error =
          ibv_modify_qp(pair, &wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0)
    return error;
  wanted = {};
  wanted.qp_state = IBV_QPS_RTR;
  wanted.path_mtu = IBV_MTU_1024;
  wanted.dest_qp_num = peer.qpn;
  wanted.rq_psn = peer.psn;
  wanted.max_dest_rd_atomic = 16;
  wanted.min_rnr_timer = 1;  // 10 us
  wanted.ah_attr.is_global = 1;
  wanted.ah_attr.port_num = 1;
  wanted.ah_attr.grh.dgid = peer.gid;
  wanted.ah_attr.grh.hop_limit = 64;
  step = "RTR";
  if (int error = ibv_modify_qp(pair, &wanted,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0)
    return error;
  wanted = {};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = static_cast<uint8_t>(rules.timeout);
  wanted.retry_cnt = static_cast<uint8_t>(rules.retries);
  wanted.rnr_retry = static_cast<uint8_t>(rules.rnr_retries);
  wanted.sq_psn = own_psn;
  wanted.max_rd_atomic = 16;
  step = "RTS";
  return ibv_modify_qp(pair, &wanted,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

int post_send(ibv_qp* pair, const Work& work) {
  ibv_sge piece{.addr = work.memory->address() + work.offset,
                .length = static_cast<uint32_t>(work.length),
                .lkey = work.memory->mr != nullptr ? work.memory->mr->lkey : 0};
  ibv_send_wr request{};
  request.wr_id = work.id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = work.opcode;
  if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    request.wr.atomic = {
        .remote_addr = work.remote, .compare_add = work.first, .swap = work.second, .rkey = work.key};
  } else {
    request.wr.rdma = {.remote_addr = work.remote, .rkey = work.key};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair, &request, &bad);
}

int post_receive(ibv_qp* pair, const Work& work) {
  ibv_sge piece{.addr = work.memory->address() + work.offset,
                .length = static_cast<uint32_t>(work.length),
                .lkey = work.memory->mr->lkey};
  ibv_recv_wr request{.wr_id = work.id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair, &request, &bad);
}

std::vector<ibv_wc> poll_for(const Queue& queue, size_t count, int64_t milliseconds) {
  std::vector<ibv_wc> taken;
  const int64_t deadline = now_us() + milliseconds * 1000;
  for (Spinner spinner;; spinner.wait()) {
    ibv_wc one;
    while (taken.size() < count && ibv_poll_cq(queue.cq, 1, &one) == 1) taken.push_back(one);
    if (taken.size() >= count || now_us() >= deadline) return taken;
  }
}

bool sleep_on(const Queue& queue, int milliseconds) {
  pollfd ready{queue.channel->fd, POLLIN, 0};
  if (::poll(&ready, 1, milliseconds) <= 0) return false;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(queue.channel, &cq, &context) != 0) return false;
  ibv_ack_cq_events(cq, 1);
  return true;
}

std::vector<ibv_wc> wait_for(const Queue& queue, size_t count, int64_t milliseconds) {
  std::vector<ibv_wc> taken;
  const int64_t deadline = now_us() + milliseconds * 1000;
  for (bool armed = false; taken.size() < count; armed = !armed) {
    ibv_wc one;
    while (taken.size() < count && ibv_poll_cq(queue.cq, 1, &one) == 1) taken.push_back(one);
    if (taken.size() >= count) break;
    // Armed first, then looked at once more: what came in between rang nobody.
    if (!armed) {
      ibv_req_notify_cq(queue.cq, 0);
      continue;
    }
    const int64_t left = (deadline - now_us()) / 1000;
    if (left <= 0) break;
    sleep_on(queue, static_cast<int>(left));
  }
  return taken;
}

size_t count_of(const std::byte* data, size_t length, std::byte value) {
  constexpr size_t kBlock = 65536;
  size_t found = 0;
  for (size_t at = 0; at < length; at += kBlock) {
    const std::byte* block = data + at;
    const size_t size = std::min(kBlock, length - at);
    if (std::memcmp(block, block + 1, size - 1) == 0)
      found += block[0] == value ? size : 0;
    else
      found += static_cast<size_t>(std::count(block, block + size, value));
  }
  return found;
}

void Spinner::wait() {
  constexpr unsigned kRunning = 3'000;  // some 20 us
  if (++spins_ > kRunning) ::sched_yield();
}

int64_t now_us() {
  timespec ts{};
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * int64_t{1'000'000} + ts.tv_nsec / 1000;
}

}  // namespace verbena::local_path
