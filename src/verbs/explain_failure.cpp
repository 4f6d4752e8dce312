#include "verbs/explain_failure.hpp"

#include <fmt/format.h>

#include "base/explain.hpp"
#include "verbs/qp_transitions.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::verbs {
namespace {

using engine::Verdict;

const char* status_name(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      return "LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR:
      return "LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR:
      return "LOC_PROT_ERR";
    case IBV_WC_LOC_ACCESS_ERR:
      return "LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR:
      return "REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR:
      return "REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR:
      return "REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR:
      return "RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR_RETRY_EXC_ERR";
    case IBV_WC_BAD_RESP_ERR:
      return "BAD_RESP_ERR";
    case IBV_WC_MW_BIND_ERR:
      return "MW_BIND_ERR";
    default:
      return "an error";
  }
}

const char* operation_name(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "SEND with immediate";
    case IBV_WR_RDMA_WRITE:
      return "RDMA WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "RDMA WRITE with immediate";
    case IBV_WR_RDMA_READ:
      return "RDMA READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "compare-and-swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "fetch-and-add";
    case IBV_WR_ATOMIC_WRITE:
      return "atomic write";
    case IBV_WR_SEND_WITH_INV:
      return "SEND with invalidate";
    case IBV_WR_LOCAL_INV:
      return "local invalidate";
    case IBV_WR_BIND_MW:
      return "memory window bind";
    default:
      return "request";
  }
}

// Why the responder refused, seen from the requester.
std::string refusal(const SendRequest& request, Verdict why) {
  const uint64_t end = request.remote_address + request.length;
  switch (why) {
    case Verdict::kBadKey:
      return fmt::format(
          "rkey 0x{:x} names no memory region of the peer (deregistered, mistyped, or an lkey of "
          "another process): hand over the rkey of a region that is registered now",
          request.rkey);
    case Verdict::kBadBounds:
      return fmt::format(
          "0x{:x} to 0x{:x} isn't wholly inside the peer's region of rkey 0x{:x}: check address "
          "and length",
          request.remote_address, end, request.rkey);
    case Verdict::kNoAccess:
      return fmt::format(
          "the peer's region of rkey 0x{:x} doesn't allow it: register it with "
          "IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC as needed",
          request.rkey);
    case Verdict::kWrongDomain:
      return fmt::format(
          "the peer's region of rkey 0x{:x} is in another protection domain than its queue pair: "
          "create both in the same",
          request.rkey);
    case Verdict::kUnmapped:
      return fmt::format(
          "the peer unmapped or protected memory of its region with rkey 0x{:x} while it was "
          "registered",
          request.rkey);
    case Verdict::kNotEnabled:
      return "the peer's queue pair doesn't allow it: set its qp_access_flags and, for READs and atomics, a "
             "max_dest_rd_atomic above 0";
    case Verdict::kMisaligned:
      return fmt::format(
          "an atomic operation needs 8 bytes that lie at a multiple of 8 in the peer's memory, and those of "
          "0x{:x} "
          "don't (in a zero-based region: its beginning may not)",
          request.remote_address);
    case Verdict::kBadSequence:
      return "the peer was sent packets that can't follow each other: the two ends disagree on path_mtu, "
             "max_rd_atomic or what is a message";
    case Verdict::kTooLong:
      return fmt::format("the {} bytes don't fit into the receive that the peer posted: post larger receives",
                         request.length);
    case Verdict::kBadReceive:
      return "the receive that the peer posted names memory it may not write: check its lkeys, ranges and "
             "IBV_ACCESS_LOCAL_WRITE";
    case Verdict::kCorrupt:
      return "the peer's tables hold values that can't be: its memory is corrupt";
    case Verdict::kWrongQueuePair:
      return fmt::format(
          "rkey 0x{:x} is a type 2 memory window that the peer bound through another queue pair: use it on "
          "the connection of that one",
          request.opcode == IBV_WR_SEND_WITH_INV ? request.imm : request.rkey);
    case Verdict::kNoSharedQueue:
      return fmt::format(
          "0x{:06x} is no shared receive queue of the XRC domain that the peer's queue pair is in, or its "
          "owner "
          "has ended: set qp_type.xrc.remote_srqn to what ibv_get_srq_num tells there",
          request.srq);
    case Verdict::kNotWindow:
      return fmt::format(
          "rkey 0x{:x} can't be invalidated: it isn't a type 2 memory window of the peer's that is bound",
          request.imm);
    default:
      return "the peer could not complete it";
  }
}

// Over the network a refusal has a class only; the peer's own sentence is more exact.
std::string refusal_by_nak(const SendRequest& request, ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
      return fmt::format(
          "the peer refused rkey 0x{:x} for 0x{:x} to 0x{:x}: not registered there, not wholly inside the "
          "region, "
          "without that access, or in another protection domain; VERBENA_EXPLAIN=1 at the peer tells which",
          request.rkey, request.remote_address, request.remote_address + request.length);
    case IBV_WC_REM_INV_REQ_ERR:
      return fmt::format(
          "the peer takes no such request: {} bytes for a shorter receive, an atomic at an address that 8 "
          "doesn't "
          "divide, or an operation that its qp_access_flags and max_dest_rd_atomic don't allow; "
          "VERBENA_EXPLAIN=1 "
          "at the peer tells which",
          request.length);
    default:
      return "the peer's own memory failed it: check the lkeys, ranges and IBV_ACCESS_LOCAL_WRITE of its "
             "receives";
  }
}

// Why a window could not be bound or invalidated here.
std::string window_refusal(const SendRequest& request, Verdict why) {
  if (request.opcode == IBV_WR_LOCAL_INV)
    return fmt::format(
        "rkey 0x{:x} isn't a type 2 memory window that is bound through this queue pair: bind it first, with "
        "IBV_WR_BIND_MW",
        request.imm);
  switch (why) {
    case Verdict::kBadKey:
      return "the region to bind it to isn't registered any more";
    case Verdict::kBadBounds:
      return request.compare_add == 0
                 ? "a type 2 memory window can't be bound to nothing: take it back with IBV_WR_LOCAL_INV"
                 : fmt::format("0x{:x} to 0x{:x} isn't wholly inside the memory region",
                               request.remote_address, request.remote_address + request.compare_add);
    case Verdict::kNoAccess:
      return "the memory region must have been registered with IBV_ACCESS_MW_BIND and, for remote writes and "
             "atomics, IBV_ACCESS_LOCAL_WRITE";
    case Verdict::kWrongDomain:
      return "window, memory region and queue pair must be in the same protection domain";
    case Verdict::kBound:
      return "the type 2 memory window is bound already: invalidate it first";
    default:
      return "the memory window was deallocated, or is of the other type";
  }
}

std::string reason(const SendRequest& request, ibv_wc_status status, Verdict why) {
  switch (status) {
    case IBV_WC_MW_BIND_ERR:
      return window_refusal(request, why);
    case IBV_WC_LOC_LEN_ERR:
      return fmt::format("{} bytes are no length for it: {}", request.length,
                         request.datagram != nullptr ? "a datagram holds as many as the port's active_mtu"
                                                     : "messages have at most 2^30 bytes, atomics exactly 8");
    case IBV_WC_LOC_QP_OP_ERR:
      return "the queue pair may have no READs or atomics under way: set max_rd_atomic above 0 when it goes "
             "to RTS";
    case IBV_WC_LOC_PROT_ERR:
      return "its own scatter list names memory that isn't registered in the queue pair's protection domain, "
             "not "
             "with the access needed, or isn't mapped any more: check lkey, address and length";
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer never answered, for all of timeout and retry_cnt: it is gone, stopped, in the error "
             "state, "
             "not yet in RTR, or connected to another queue pair, GID or PSN";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive posted, for all of rnr_retry and its min_rnr_timer: post receives "
             "earlier or "
             "set rnr_retry to 7";
    case IBV_WC_BAD_RESP_ERR:
      return "the peer's answer doesn't fit the request: the two ends disagree on path_mtu, or the peer is "
             "at fault";
    default:
      return why == Verdict::kDone ? refusal_by_nak(request, status) : refusal(request, why);
  }
}

}  // namespace

void explain_send_failure(QueuePair& queue_pair, const SendRequest& request, ibv_wc_status status,
                          Verdict why) {
  base::explain(fmt::format("QP 0x{:06x}: {} (wr_id {}) failed with {}: {}", queue_pair.number().value,
                            operation_name(request.opcode), request.wr_id, status_name(status),
                            reason(request, status, why)));
}

void explain_receive_failure(QueuePair& queue_pair, const ibv_wc& completion, Verdict why) {
  const char* cause =
      "its scatter list names memory that may not be written: check lkey, range and "
      "IBV_ACCESS_LOCAL_WRITE";
  if (why == Verdict::kTooLong)
    cause = "the message that came is longer than its buffers: post larger receives";
  if (completion.status == IBV_WC_LOC_ACCESS_ERR)
    cause =
        "the RDMA WRITE whose immediate it was for may not write where it wanted to, or the key that came "
        "with a SEND can't be invalidated";
  base::explain(fmt::format("QP 0x{:06x}: receive (wr_id {}) failed with {}: {}", queue_pair.number().value,
                            completion.wr_id, status_name(completion.status), cause));
}

void explain_refused_send(QueuePair& queue_pair, const ibv_send_wr& request, int error) {
  const ibv_qp_cap& caps = queue_pair.caps();
  const auto state = queue_pair.state();
  std::string cause = "its opcode is none that a queue pair knows";
  if (error == ENOMEM)
    cause = fmt::format(
        "{} requests are outstanding, as many as max_send_wr allows: poll their completions first",
        caps.max_send_wr);
  else if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR)
    cause = "the queue pair isn't connected yet: take it to RTS first";
  else if (error == EOPNOTSUPP)
    cause = fmt::format("opcode {} isn't there yet", static_cast<int>(request.opcode));
  else if (queue_pair.type() != IBV_QPT_RC && queue_pair.type() != IBV_QPT_XRC_SEND &&
           request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM)
    cause = fmt::format(
        "{} queue pairs have no such operation, or not in this form: UC has SEND, RDMA WRITE, BIND_MW and "
        "LOCAL_INV, UD has SEND, RC has all",
        type_name(queue_pair.type()));
  else if (queue_pair.type() == IBV_QPT_XRC_SEND &&
           (request.opcode == IBV_WR_ATOMIC_WRITE || request.opcode == IBV_WR_SEND_WITH_INV ||
            request.opcode == IBV_WR_LOCAL_INV || request.opcode == IBV_WR_BIND_MW))
    cause =
        "ATOMIC_WRITE is RC's alone, and so are memory windows of type 2 with all that invalidates them: "
        "nobody reaches memory by an XRC_SEND queue pair that binds one. Bind windows of type 1, by "
        "ibv_bind_mw";
  else if (queue_pair.type() == IBV_QPT_XRC_SEND && request.qp_type.xrc.remote_srqn > 0xffffff)
    cause = fmt::format("qp_type.xrc.remote_srqn is 0x{:x}, and such numbers have 24 bits",
                        request.qp_type.xrc.remote_srqn);
  else if (queue_pair.type() == IBV_QPT_UD && request.wr.ud.ah == nullptr)
    cause = "wr.ud.ah is null: create an address handle by ibv_create_ah";
  else if (queue_pair.type() == IBV_QPT_UD &&
           AddressHandle::from(request.wr.ud.ah).vector.domain != queue_pair.config().domain->handle())
    cause = "its address handle is of another protection domain than the queue pair: create both in the same";
  else if (queue_pair.type() == IBV_QPT_UD && request.wr.ud.remote_qpn > 0xffffff)
    cause = fmt::format("wr.ud.remote_qpn is 0x{:x}, and queue pair numbers have 24 bits",
                        request.wr.ud.remote_qpn);
  else if (request.opcode == IBV_WR_BIND_MW)
    cause =
        "a bind needs a memory window of the right type (1: ibv_bind_mw, 2: IBV_WR_BIND_MW), an rkey that "
        "differs from the window's in its low 8 bits only, a region, and no flags but remote rights and "
        "IBV_ACCESS_ZERO_BASED";
  else if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > caps.max_send_sge)
    cause = fmt::format("it has {} pieces where max_send_sge allows {}", request.num_sge, caps.max_send_sge);
  else if ((request.send_flags & IBV_SEND_INLINE) != 0)
    cause = fmt::format("IBV_SEND_INLINE is for sends and writes of up to max_inline_data, {} bytes here",
                        caps.max_inline_data);
  base::explain(fmt::format("QP 0x{:06x}: ibv_post_send refuses wr_id {}: {}", queue_pair.number().value,
                            request.wr_id, cause));
}

void explain_refused_receive(QueuePair& queue_pair, const ibv_recv_wr& request, int error) {
  const ibv_qp_cap& caps = queue_pair.caps();
  std::string cause = "the queue pair is in RESET: take it to INIT first";
  if (error == EOPNOTSUPP)
    cause = "its receives are those of a shared receive queue: use ibv_post_srq_recv";
  else if (error == ENOMEM)
    cause = fmt::format("{} receives wait, or their flush isn't polled yet, as many as max_recv_wr allows",
                        caps.max_recv_wr);
  else if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > caps.max_recv_sge)
    cause = fmt::format("it has {} pieces where max_recv_sge allows {}", request.num_sge, caps.max_recv_sge);
  base::explain(fmt::format("QP 0x{:06x}: ibv_post_recv refuses wr_id {}: {}", queue_pair.number().value,
                            request.wr_id, cause));
}

void explain_responder_failure(QueuePair& queue_pair, Verdict why) {
  const char* cause = "the peer delivered something that can't be";
  switch (why) {
    case Verdict::kBadKey:
      cause = "the peer used a key that names no memory region of this process";
      break;
    case Verdict::kBadBounds:
      cause = "the peer wanted to access a range that isn't wholly inside the region of its key";
      break;
    case Verdict::kNoAccess:
      cause = "the peer wanted an access that the region wasn't registered with";
      break;
    case Verdict::kWrongDomain:
      cause = "the peer used the key of a region in another protection domain than the queue pair's";
      break;
    case Verdict::kUnmapped:
      cause = "the peer wanted to access registered memory that was unmapped or protected since";
      break;
    case Verdict::kNotEnabled:
      cause = "the peer sent an operation that qp_access_flags or max_dest_rd_atomic don't allow";
      break;
    case Verdict::kMisaligned:
      cause = "the peer sent a misaligned atomic: its address must be one that 8 divides";
      break;
    case Verdict::kBadSequence:
      cause = "the peer sent packets that can't follow each other: do both ends have the same path_mtu?";
      break;
    case Verdict::kWrongQueuePair:
      cause = "the peer used a type 2 memory window that was bound through another queue pair";
      break;
    case Verdict::kNotWindow:
      cause = "the peer wanted to invalidate a key that isn't one of a bound type 2 memory window";
      break;
    case Verdict::kNoSharedQueue:
      cause = "the peer named a shared receive queue that isn't there, or not in the queue pair's XRC domain";
      break;
    default:
      break;
  }
  base::explain(fmt::format("QP 0x{:06x} goes to the error state: {}", queue_pair.number().value, cause));
}

}  // namespace verbena::verbs
