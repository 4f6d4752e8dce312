// What XRC target queue pairs, which are the keeper's, deliver to a shared receive queue of this process.
#include <fmt/format.h>

#include "base/explain.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/process.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::verbs {

using engine::Verdict;

namespace {

ibv_wc_status status_of(Verdict why) {
  if (why == Verdict::kTooLong) return IBV_WC_LOC_LEN_ERR;
  if (engine::nak_of(why) == engine::Nak::kRemoteAccess) return IBV_WC_LOC_ACCESS_ERR;
  return IBV_WC_LOC_PROT_ERR;
}

}  // namespace

void SharedReceiveQueue::close() {
  if (!config_.cq || entry_.xrcd.get() == 0) return;
  entry_.life.release(0);
  entry_.xrcd.set(0);
  // A poller that found us in the table is done with us when it gives this lock back.
  config_.cq->settle([&] { process_.publish_srq(index_, nullptr); });
  --config_.cq->users;
}

base::Result<void> SharedReceiveQueue::admit_keeper(base::Slot slot, uint32_t epoch) {
  const auto ring = config_.cq->inbound(slot, epoch);
  if (!ring) return std::unexpected(ring.error());
  entry_.ring_id.set(ring->id);
  entry_.ring_slots.set(ring->shape.slots);
  entry_.ring_payload.set(ring->shape.payload);
  entry_.ring_at.release(ring->offset);
  return {};
}

void SharedReceiveQueue::add_sender(base::Slot slot) {
  const std::lock_guard lock(lock_);
  senders_.set(slot.value);
}

// Everything in the record is a peer's word: what isn't so is dropped, and costs nobody else.
bool SharedReceiveQueue::on_record(const arena::RingConsumer::Taken& taken, base::Slot from,
                                   ibv_wc& completion) {
  const arena::Record& record = taken.record;
  ReceiveFront front;
  if ((record.flags & arena::kNamesReceive) == 0 || !find_claimed(record.receive, from, {record.qp}, front))
    return false;
  completion = {};
  completion.wr_id = front.wr_id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = record.kind == arena::RecordKind::kWriteImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.qp_num = record.qp;
  const bool fits = record.length <= kMaxMessageBytes && (record.kind != arena::RecordKind::kPlaced ||
                                                          record.length <= front.entry->capacity.get());
  if (record.kind == arena::RecordKind::kFail) {
    completion.status = status_of(static_cast<Verdict>(record.length));
    completion.vendor_err = record.length;
  } else if (record.kind == arena::RecordKind::kSend && taken.sane) {
    completion.status = place_message(process_.arena(), config_.domain->handle(), taken.bytes, front);
  } else if (!fits ||
             (record.kind != arena::RecordKind::kPlaced && record.kind != arena::RecordKind::kWriteImm)) {
    completion.status = IBV_WC_GENERAL_ERR;
  }
  if (completion.status == IBV_WC_SUCCESS) {
    completion.byte_len = record.length;
    if ((record.flags & arena::kHasImm) != 0) {
      completion.wc_flags = IBV_WC_WITH_IMM;
      completion.imm_data = record.imm;
    }
    if ((record.flags & arena::kHasInvalidate) != 0) {
      process_.windows().invalidate_for_peer(record.imm, {{record.qp}, config_.domain->handle()});
      completion.wc_flags = IBV_WC_WITH_INV;
      completion.invalidated_rkey = record.imm;
    }
  } else {
    base::explain(fmt::format(
        "SRQ 0x{:06x}: the receive with wr_id {} ends in an error: {}", number(), front.wr_id,
        completion.status == IBV_WC_LOC_LEN_ERR
            ? "the message is longer than it; post larger receives"
            : "its memory may not be written, or the request that came for it named memory that may not be "
              "accessed; check lkeys, ranges and access flags"));
  }
  consume(front.index);
  return true;
}

}  // namespace verbena::verbs
