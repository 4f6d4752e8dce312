// What ibv_post_send checks of a request, and what it keeps of it.
#include <algorithm>
#include <cstring>

#include "verbs/queue_pair.hpp"
#include "verbs/send_queue.hpp"

namespace verbena::verbs {
namespace {

// IBA table 49: which operation goes with which service. EINVAL: none; EOPNOTSUPP: we don't have it yet.
int check_opcode(ibv_wr_opcode opcode, ibv_qp_type type, ibv_mw_type windows) {
  if (type == IBV_QPT_XRC_RECV) return EINVAL;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return 0;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return type == IBV_QPT_UD ? EINVAL : 0;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND ? 0 : EINVAL;
    case IBV_WR_ATOMIC_WRITE:  // annex A19 has it for RC alone
    // UC has no opcode for it on the wire. Over XRC there is nothing to invalidate: a window of type 2 is
    // reached by the queue pair that bound it, and an XRC_SEND one is reached by nobody.
    case IBV_WR_SEND_WITH_INV:
      return type == IBV_QPT_RC ? 0 : EINVAL;
    case IBV_WR_LOCAL_INV:
      return type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND ? EINVAL : 0;
    case IBV_WR_BIND_MW:
      if (type == IBV_QPT_XRC_SEND && windows == IBV_MW_TYPE_2) return EINVAL;
      return type == IBV_QPT_UD ? EINVAL : 0;
    default:
      return opcode == IBV_WR_TSO ? EOPNOTSUPP : EINVAL;
  }
}

}  // namespace

int SendQueue::prepare(const ibv_send_wr& from, SendRequest& request, ibv_mw_type windows) {
  if (const int refused = check_opcode(from.opcode, owner_->type(), windows); refused != 0) return refused;
  if (stays_here(from.opcode)) return prepare_here(from, request, windows);
  if (from.num_sge < 0 || static_cast<uint32_t>(from.num_sge) > limits_.pieces) return EINVAL;
  request = {.wr_id = from.wr_id,
             .opcode = from.opcode,
             .flags = from.send_flags,
             .imm = from.imm_data,
             .pieces = from.sg_list,
             .piece_count = static_cast<unsigned>(from.num_sge)};
  for (int i = 0; i < from.num_sge; ++i) request.length += from.sg_list[i].length;
  if (owner_->type() == IBV_QPT_XRC_SEND) {
    if (from.qp_type.xrc.remote_srqn > 0xffffff) return EINVAL;
    request.srq = from.qp_type.xrc.remote_srqn;
  }
  if (!datagrams_.empty()) {
    if (const int refused = prepare_datagram(from, request); refused != 0) return refused;
  } else if (is_atomic(from.opcode)) {
    request.remote_address = from.wr.atomic.remote_addr;
    request.rkey = from.wr.atomic.rkey;
    request.compare_add = from.wr.atomic.compare_add;
    request.swap = from.wr.atomic.swap;
  } else {
    request.remote_address = from.wr.rdma.remote_addr;
    request.rkey = from.wr.rdma.rkey;
  }
  if ((from.send_flags & IBV_SEND_INLINE) != 0) {
    if (is_fetch(from.opcode)) return EINVAL;
    if (request.length > limits_.inline_bytes) return EINVAL;
  }
  return 0;
}

int SendQueue::check_all(ibv_send_wr* requests, ibv_send_wr** bad, ibv_mw_type windows) {
  uint32_t places = outstanding();
  for (ibv_send_wr* next = requests; next != nullptr; next = next->next, ++places) {
    SendRequest request;
    int error = state_ == SendState::kRefuses ? EINVAL : prepare(*next, request, windows);
    if (error == 0 && places >= limits_.requests) error = ENOMEM;
    if (error == 0) continue;
    if (bad != nullptr) *bad = next;
    return error;
  }
  return 0;
}

int SendQueue::prepare_datagram(const ibv_send_wr& from, SendRequest& request) {
  if (from.wr.ud.ah == nullptr || from.wr.ud.remote_qpn > 0xffffff) return EINVAL;
  const AddressVector& vector = AddressHandle::from(from.wr.ud.ah).vector;
  if (vector.domain != owner_->config().domain->handle()) return EINVAL;
  posted_ = {.vector = vector, .target = {from.wr.ud.remote_qpn}, .qkey = from.wr.ud.remote_qkey};
  request.datagram = &posted_;
  return 0;
}

void SendQueue::store(const SendRequest& request) {
  Stored* stored = at(tail_);
  auto* behind = reinterpret_cast<std::byte*>(stored + 1);
  stored->request = request;
  if (request.datagram != nullptr)
    stored->request.datagram = &(datagrams_[tail_ & mask_] = *request.datagram);
  if ((request.flags & IBV_SEND_INLINE) != 0) {
    // The program may reuse its buffers as soon as we return.
    stored->request.inline_data = behind;
    if (request.inline_data != nullptr) {
      std::memcpy(behind, request.inline_data, request.length);
    } else {
      for (unsigned i = 0; i < request.piece_count; ++i) {
        if (request.pieces[i].length == 0) continue;
        std::memcpy(behind, reinterpret_cast<const void*>(request.pieces[i].addr), request.pieces[i].length);
        behind += request.pieces[i].length;
      }
    }
  } else {
    stored->request.pieces = reinterpret_cast<const ibv_sge*>(behind);
    if (request.piece_count > 0) std::memcpy(behind, request.pieces, request.piece_count * sizeof(ibv_sge));
  }
  ++tail_;
}

}  // namespace verbena::verbs
