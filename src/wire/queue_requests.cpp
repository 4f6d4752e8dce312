#include "wire/queue_requests.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "verbs/access_burst.hpp"
#include "verbs/request_memory.hpp"
#include "verbs/scatter.hpp"

namespace verbena::wire {

using engine::Request;
using engine::RequestStatus;
using engine::Verdict;
using verbs::SendRequest;

namespace {

// A NAK tells a class of reasons only; what exactly it was the peer's own sentence says.
ibv_wc_status status_of(RequestStatus status) {
  switch (status) {
    case RequestStatus::kSuccess:
      return IBV_WC_SUCCESS;
    case RequestStatus::kLocalProtection:
      return IBV_WC_LOC_PROT_ERR;
    case RequestStatus::kLocalLength:
      return IBV_WC_LOC_LEN_ERR;
    case RequestStatus::kRemoteAccess:
      return IBV_WC_REM_ACCESS_ERR;
    case RequestStatus::kRemoteInvalid:
      return IBV_WC_REM_INV_REQ_ERR;
    case RequestStatus::kRemoteOperational:
      return IBV_WC_REM_OP_ERR;
    case RequestStatus::kRetryExceeded:
      return IBV_WC_RETRY_EXC_ERR;
    case RequestStatus::kRnrRetryExceeded:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case RequestStatus::kBadResponse:
      return IBV_WC_BAD_RESP_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

}  // namespace

Request request_of(const SendRequest& from) {
  Request request{.has_imm = from.opcode == IBV_WR_SEND_WITH_IMM || from.opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                  .solicited = (from.flags & IBV_SEND_SOLICITED) != 0,
                  .fenced = (from.flags & IBV_SEND_FENCE) != 0,
                  .imm = ntohl(from.imm),
                  .key = from.rkey,
                  .address = from.remote_address,
                  .length = from.length,
                  .compare_add = from.compare_add,
                  .swap = from.swap,
                  .srq = from.srq};
  switch (from.opcode) {
    case IBV_WR_SEND_WITH_INV:
      request.kind = Request::Kind::kSend;
      request.invalidates = true;
      request.imm = from.imm;  // a key, which both ends have in host order
      break;
    case IBV_WR_ATOMIC_WRITE:
      request.kind = Request::Kind::kAtomicWrite;
      break;
    case IBV_WR_RDMA_READ:
      request.kind = Request::Kind::kRead;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      request.kind = Request::Kind::kCompareSwap;
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      request.kind = Request::Kind::kFetchAdd;
      break;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      request.kind = Request::Kind::kSend;
      break;
    default:
      request.kind = Request::Kind::kWrite;
      break;
  }
  return request;
}

verbs::SendQueue* QueueRequests::begin() {
  first_ = queue_ != nullptr ? queue_->next_number() : 0;
  return queue_;
}

bool QueueRequests::readable(const SendRequest& request) const {
  verbs::RequestSlice whole;
  const uint32_t access = verbs::is_fetch(request.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
  return verbs::slice_request(process_.arena(), domain_, request, 0, request.length, access, whole) ==
         Verdict::kDone;
}

// The part of a long message that lies in one piece.
std::byte* QueueRequests::in_burst(const SendRequest& request, uint64_t offset, size_t length,
                                   verbs::Access access) const {
  if (length < verbs::kPartOfMore || request.piece_count != 1 || request.inline_data != nullptr)
    return nullptr;
  const ibv_sge& piece = request.pieces[0];
  return verbs::AccessBurst::find(
      {*self_, process_.slot(), verbs::AccessSide::kRequester},
      {.key = piece.lkey,
       .address = piece.addr + offset,
       .length = length,
       .domain = domain_,
       .access = access == verbs::Access::kWrite ? uint32_t{IBV_ACCESS_LOCAL_WRITE} : 0},
      access);
}

bool QueueRequests::gather(uint32_t number, uint64_t offset, std::span<std::byte> into) {
  const SendRequest& request = queue_->request(first_ + number);
  if (request.inline_data != nullptr) {  // ours
    std::memcpy(into.data(), request.inline_data + offset, into.size());
    return true;
  }
  if (const auto* memory = in_burst(request, offset, into.size(), verbs::Access::kRead)) {
    verbs::copy_in_order(into.data(), memory, into.size(), engine::Tail::kAnyOrder);
    return true;
  }
  verbs::HazardGuard guard(*self_, process_.slot(), verbs::AccessSide::kRequester);
  verbs::RequestSlice part;
  return verbs::guard_request(guard, request) &&
         verbs::slice_request(process_.arena(), domain_, request, offset, into.size(), 0, part) ==
             Verdict::kDone &&
         verbs::gather_own(into.data(), part.span(), part.end);
}

const std::byte* QueueRequests::in_place(uint32_t number, uint64_t offset, size_t length) {
  return in_burst(queue_->request(first_ + number), offset, length, verbs::Access::kRead);
}

bool QueueRequests::scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                            engine::Tail tail) {
  const SendRequest& request = queue_->request(first_ + number);
  if (auto* memory = in_burst(request, offset, from.size(), verbs::Access::kWrite)) {
    verbs::copy_in_order(memory, from.data(), from.size(), tail);
    return true;
  }
  verbs::HazardGuard guard(*self_, process_.slot(), verbs::AccessSide::kRequester);
  verbs::RequestSlice part;
  return verbs::guard_request(guard, request) &&
         verbs::slice_request(process_.arena(), domain_, request, offset, from.size(), IBV_ACCESS_LOCAL_WRITE,
                              part) == Verdict::kDone &&
         verbs::scatter_own(part.span(), from.data(), from.size(), tail, part.end);
}

size_t QueueRequests::scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                                   engine::MorePayloads& payloads) {
  most = std::min(most, payloads.most());
  auto* memory = in_burst(queue_->request(first_ + number), offset, most * each, verbs::Access::kWrite);
  return memory == nullptr ? 0 : verbs::copy_payloads(memory, each, most, engine::Tail::kAnyOrder, payloads);
}

void QueueRequests::ended(uint32_t, RequestStatus status) {
  queue_->ended(status_of(status), Verdict::kDone);
}

}  // namespace verbena::wire
