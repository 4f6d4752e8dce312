// What peers deliver to a queue pair, and how it fails when they, or it, did wrong.
#include <algorithm>
#include <array>
#include <cstring>

#include "verbs/device_limits.hpp"
#include "verbs/explain_failure.hpp"
#include "verbs/key_check.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/scatter.hpp"

namespace verbena::verbs {

using engine::Verdict;

namespace {
constexpr uint32_t kDatagramPrefix = sizeof(uint32_t) + sizeof(ibv_grh);
// An adapter's names for the header of a datagram: its low three bits, of which 0 is RoCE v1's GRH.
constexpr uint8_t kIpv6Header = 1;
constexpr uint8_t kIpv4Header = 2;
}  // namespace

bool QueuePair::find_receive(const arena::Record& record, base::Slot from, ReceiveFront& front) {
  if (config_.srq)
    return (record.flags & arena::kNamesReceive) != 0 &&
           config_.srq->find_claimed(record.receive, from, number_, front);
  if (!receive_ || receive_->empty()) return false;
  front = receive_->front();
  return true;
}

void QueuePair::pop_receive(const ReceiveFront& front) {
  if (config_.srq)
    config_.srq->consume(front.index);
  else
    receive_->pop();
}

bool QueuePair::on_failure(const arena::Record& record, const ReceiveFront* front, ibv_wc& completion,
                           bool& failed) {
  const auto why = static_cast<Verdict>(record.length);
  const bool consumes = (record.flags & arena::kHasImm) != 0;
  const auto completes = [&](ibv_wc_status status) {
    return fail_receive(*front, completion, status, why, failed);
  };
  if (why == Verdict::kTooLong && front != nullptr) return completes(IBV_WC_LOC_LEN_ERR);
  if (why == Verdict::kBadReceive && front != nullptr) return completes(IBV_WC_LOC_PROT_ERR);
  if (consumes && front != nullptr && engine::nak_of(why) == engine::Nak::kRemoteAccess)
    return completes(IBV_WC_LOC_ACCESS_ERR);
  failed = note_failure(why, false);
  return false;
}

bool QueuePair::on_record(const arena::RingConsumer::Taken& taken, base::Slot from, ibv_wc& completion,
                          bool& failed) {
  const arena::Record& record = taken.record;
  const ibv_qp_state now = state();
  if (failing_ || record.incarnation != incarnation() || now == IBV_QPS_ERR || now == IBV_QPS_RESET ||
      now == IBV_QPS_INIT)
    return false;
  if (now == IBV_QPS_RTR && !std::exchange(established_, true)) raise(IBV_EVENT_COMM_EST);

  ReceiveFront front;
  const bool waits = find_receive(record, from, front);
  if (record.kind == arena::RecordKind::kFail)
    return on_failure(record, waits ? &front : nullptr, completion, failed);
  const bool datagram = record.kind == arena::RecordKind::kDatagram;
  const bool has_bytes = datagram || record.kind == arena::RecordKind::kSend;
  const bool known = config_.type == IBV_QPT_UD ? datagram && record.length >= kDatagramPrefix
                                                : record.kind == arena::RecordKind::kSend ||
                                                      record.kind == arena::RecordKind::kPlaced ||
                                                      record.kind == arena::RecordKind::kWriteImm;
  const bool fits =
      record.length <= kMaxMessageBytes &&
      (record.kind != arena::RecordKind::kPlaced || !waits || record.length <= front.entry->capacity.get());
  if (!known || !taken.sane || !fits || !waits) {  // no honest peer sends that
    failed = note_failure(Verdict::kCorrupt, false);
    return false;
  }
  if (has_bytes)
    if (const auto status = place_message(
            process_.arena(), (config_.srq ? config_.srq->config().domain : config_.domain)->handle(),
            datagram ? taken.bytes.subspan(sizeof(uint32_t)) : taken.bytes, front);
        status != IBV_WC_SUCCESS)
      return fail_receive(front, completion, status,
                          status == IBV_WC_LOC_LEN_ERR ? Verdict::kTooLong : Verdict::kBadReceive, failed);
  completion = {};
  completion.wr_id = front.wr_id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = record.kind == arena::RecordKind::kWriteImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.byte_len = record.length;
  completion.qp_num = number_.value;
  if ((record.flags & arena::kHasImm) != 0) {
    completion.wc_flags = IBV_WC_WITH_IMM;
    completion.imm_data = record.imm;
  }
  if ((record.flags & arena::kHasInvalidate) != 0) {
    process_.windows().invalidate_for_peer(record.imm, {number_, config_.domain->handle()});
    completion.wc_flags = IBV_WC_WITH_INV;
    completion.invalidated_rkey = record.imm;
  }
  if (datagram) describe_datagram(taken, completion);
  pop_receive(front);
  return true;
}

void QueuePair::describe_datagram(const arena::RingConsumer::Taken& taken, ibv_wc& completion) const {
  std::memcpy(&completion.src_qp, taken.bytes.data(), sizeof completion.src_qp);
  completion.byte_len -= static_cast<uint32_t>(sizeof completion.src_qp);
  completion.wc_flags |= IBV_WC_GRH;
  // Under RoCE v2 adapters tell here what kind of IP header lies in the 40 bytes, and UCX relies on it.
  const bool ipv6 = static_cast<uint8_t>(taken.bytes[sizeof completion.src_qp]) >> 4 == 6;
  completion.sl = ipv6 ? kIpv6Header : kIpv4Header;
}

bool QueuePair::fail_receive(const ReceiveFront& front, ibv_wc& completion, ibv_wc_status status, Verdict why,
                             bool& failed) {
  completion = {};
  completion.wr_id = front.wr_id;
  completion.status = status;
  completion.opcode = IBV_WC_RECV;
  completion.qp_num = number_.value;
  completion.vendor_err = static_cast<uint32_t>(why);
  failed = note_failure(why, true);
  explain_receive_failure(*this, completion, why);
  pop_receive(front);
  return true;
}

// `failing_` comes last: fail_as_responder() may look at any time, and it has another lock.
bool QueuePair::note_failure(Verdict why, bool completed) {
  failure_ = why;
  failure_completed_ = completed;
  failing_ = true;
  return true;
}

// After a record that failed it, without any lock.
void QueuePair::fail_as_responder() {
  const std::lock_guard lock(modify_mutex_);
  if (!failing_) return;  // in an earlier life
  if (state() == IBV_QPS_ERR || state() == IBV_QPS_RESET) return;
  if (!failure_completed_) {
    explain_responder_failure(*this, failure_);
    switch (engine::nak_of(failure_)) {
      case engine::Nak::kRemoteAccess:
        raise(IBV_EVENT_QP_ACCESS_ERR);
        break;
      case engine::Nak::kInvalidRequest:
        raise(IBV_EVENT_QP_REQ_ERR);
        break;
      default:
        raise(IBV_EVENT_QP_FATAL);
        break;
    }
  }
  enter_error();
}

void QueuePair::conclude_expected_failure() {
  const uint64_t life = expected_failure_.exchange(0);
  if (life != uint64_t{incarnation()} + 1 || !may_fail()) return;
  enter_send_error();
}

// A request of ours failed: its completion has told so.
void QueuePair::fail_as_requester(uint32_t life) {
  const std::lock_guard lock(modify_mutex_);
  if (life != incarnation()) return;  // it was reset since
  // Whoever asked for the state since the failure has concluded it, and the program may have gone on.
  if (expected_failure_.exchange(0) == 0 || !may_fail()) return;
  enter_send_error();
}

void QueuePair::fail_for_overrun() {
  const std::lock_guard lock(modify_mutex_);
  if (state() == IBV_QPS_ERR || state() == IBV_QPS_RESET) return;
  enter_error();
}

void QueuePair::withdraw_promise(uint32_t key) {
  if (!receive_) return;  // shared ones are looked at one by one
  const std::lock_guard lock(receive_->lock);
  receive_->withdraw_promise(key);
}

}  // namespace verbena::verbs
