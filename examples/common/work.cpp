#include "common/work.hpp"

namespace examples {
namespace {

const char* usual_reason(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      return "a message came that is longer than the RECV posted for it";
    case IBV_WC_LOC_PROT_ERR:
      return "the local buffer isn't registered for this";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair had gone to the error state before";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer's RECV is shorter than the message, or it doesn't allow this";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer didn't register that memory for this access";
    case IBV_WC_REM_OP_ERR:
      return "the peer couldn't carry it out";
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer doesn't answer: it has gone, or its queue pair has";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "receiver not ready: the peer had no RECV posted, in all the attempts that its accept allowed";
    default:
      return "see docs/ERRORS.md";
  }
}

}  // namespace

void post(ibv_qp* qp, ibv_send_wr& request, const char* what) {
  ibv_send_wr* bad = nullptr;
  check(what, ibv_post_send(qp, &request, &bad));
}

void post_send(ibv_qp* qp, Buffer& buffer, uint64_t wr_id) {
  ibv_send_wr request = {};
  request.wr_id = wr_id;
  request.sg_list = buffer.sges().data();
  request.num_sge = static_cast<int>(buffer.sges().size());
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  post(qp, request, "ibv_post_send");
}

void post_receive(ibv_qp* qp, Buffer& buffer, uint64_t wr_id) {
  ibv_recv_wr request = {};
  request.wr_id = wr_id;
  request.sg_list = buffer.sges().data();
  request.num_sge = static_cast<int>(buffer.sges().size());
  ibv_recv_wr* bad = nullptr;
  check("ibv_post_recv", ibv_post_recv(qp, &request, &bad));
}

void check_completion(const ibv_wc& completion) {
  trace("completion of wr_id {}: {}, {} bytes", completion.wr_id, ibv_wc_status_str(completion.status),
        completion.status == IBV_WC_SUCCESS ? completion.byte_len : 0);
  if (completion.status == IBV_WC_SUCCESS) return;
  throw Failure(fmt::format("work request {} failed with status {}, {}: {}", completion.wr_id,
                            static_cast<int>(completion.status), ibv_wc_status_str(completion.status),
                            usual_reason(completion.status)));
}

void check_length(const ibv_wc& completion, uint64_t expected) {
  if (completion.byte_len != expected)
    throw Failure(
        fmt::format("wrong byte_len: {} bytes came, {} were expected; do both ends have the same --size?",
                    completion.byte_len, expected));
}

bool poll_once(ibv_cq* cq, ibv_wc& completion) {
  const int found = ibv_poll_cq(cq, 1, &completion);
  if (found < 0) throw Failure("ibv_poll_cq", errno);
  return found == 1;
}

ibv_wc busy_poll(ibv_cq* cq, PollCounts& counts) {
  ibv_wc completion;
  while (!poll_once(cq, completion)) ++counts.first_empty;
  ++counts.first_hits;
  return completion;
}

}  // namespace examples
