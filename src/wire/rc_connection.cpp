#include "wire/rc_connection.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "verbs/request_memory.hpp"
#include "verbs/scatter.hpp"

namespace verbena::wire {

using engine::Request;
using engine::RequestStatus;
using engine::Verdict;
using verbs::SendOutcome;
using verbs::SendRequest;

namespace {

constexpr unsigned kBurst = 64;  // packets that one turn sends at most

Request request_of(const SendRequest& from) {
  Request request{.has_imm = from.opcode == IBV_WR_SEND_WITH_IMM || from.opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                  .solicited = (from.flags & IBV_SEND_SOLICITED) != 0,
                  .fenced = (from.flags & IBV_SEND_FENCE) != 0,
                  .imm = ntohl(from.imm),
                  .key = from.rkey,
                  .address = from.remote_address,
                  .length = from.length,
                  .compare_add = from.compare_add,
                  .swap = from.swap};
  switch (from.opcode) {
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

verbs::RequesterIdentity identity_of(const RcPeering& peering, base::Slot ours) {
  return {.qpn = peering.target,
          .incarnation = 0,
          .first_psn = peering.first_expected.value,
          .gid = {peering.peer_gid[0], peering.peer_gid[1]},
          .accessor = ours};
}

}  // namespace

RcConnection::RcConnection(std::shared_ptr<Port> port, verbs::Process& process,
                           std::shared_ptr<verbs::QueueOwner> self, const RcPeering& peering)
    : port_(std::move(port)),
      process_(process),
      self_(std::move(self)),
      peering_(peering),
      recognised_(peering.route.recognised),
      actions_(self_, peering.own, identity_of(peering, process.slot())),
      responder_({.requester = peering.target,
                  .first_psn = peering.first_expected,
                  .mtu = peering.mtu,
                  .fetches = std::max(peering.fetches_granted, 1u)},
                 actions_) {}

RcConnection::~RcConnection() {
  if (served_) port_->remove(*this);
}

void RcConnection::serve(const std::shared_ptr<verbs::SendQueue>& queue) {
  queue_ = queue;
  served_ = true;
  port_->add(*this);
}

void RcConnection::set_rules(const verbs::RetryRules& rules) {
  if (requester_) {
    requester_->set_retry_rules(rules.timeout, rules.retries, rules.rnr_retries);
    return;
  }
  const auto queue = queue_.lock();
  requester_.emplace(engine::RcRequesterConfig{.target = peering_.target,
                                               .first_psn = first_psn_,
                                               .mtu = peering_.mtu,
                                               .capacity = queue ? queue->limits().requests : 1,
                                               .fetches = std::max(rules.fetches, 1u),
                                               .timeout = rules.timeout,
                                               .retries = rules.retries,
                                               .rnr_retries = rules.rnr_retries,
                                               .chance = peering_.own.value},
                     static_cast<engine::RequesterHost&>(*this));
}

SendOutcome RcConnection::advance(const SendRequest& request, verbs::SendProgress&, uint64_t) {
  if (!requester_ || requester_->full()) return {SendOutcome::Kind::kFull};
  // Nothing of a request that can't be whole is sent.
  verbs::RequestSlice whole;
  const bool fetches = request.opcode == IBV_WR_RDMA_READ || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                       request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const uint32_t access = fetches ? IBV_ACCESS_LOCAL_WRITE : 0;
  if (verbs::slice_request(process_.arena(), peering_.domain, request, 0, request.length, access, whole) !=
      Verdict::kDone)
    return {SendOutcome::Kind::kFailed, IBV_WC_LOC_PROT_ERR, Verdict::kFaultHere};
  requester_->post(request_of(request));
  return {SendOutcome::Kind::kTaken};
}

net::Route RcConnection::way() const {
  net::Route route = peering_.route;
  route.recognised = recognised();
  return route;
}

void RcConnection::push() {
  Port::Sending sending(*port_, way());
  const base::Instant now = base::now();
  send_requests(now, sending);
  port_->take_along(*this, [&] { (void)responder_.poll_transmit(now, sending); });
  sending.flush();
}

void RcConnection::send_requests(base::Instant now, Port::Sending& sending) {
  if (!requester_ || stopped_) return;
  unsigned sent = 0;
  while (sent < kBurst && requester_->poll_transmit(now, sending)) ++sent;
  port_->schedule(*this, sent == kBurst ? now : requester_->next_deadline(), now);
}

Drop RcConnection::on_packet(base::Instant now, const roce::Packet& packet) {
  if (packet.bth.service != roce::Service::kRc) return Drop::kBadService;
  if (packet.info().request) {
    responder_.set_rnr_timer(actions_.rnr_timer_code());
    return drop_of(responder_.on_packet(now, packet));
  }
  const auto queue = queue_.lock();
  auto reason = engine::DropReason::kSilence;
  if (queue)
    port_->conclude_later(queue->answered([&] {
      if (requester_ && !stopped_) reason = requester_->on_packet(now, packet);
    }));
  return drop_of(reason);
}

void RcConnection::go_on(base::Instant now) {
  if (!responder_.only_acknowledges() || !port_->put_off(*this)) send_answers(now);
  if (const auto queue = queue_.lock())
    port_->conclude_later(queue->answered([&] {
      if (!requester_ || stopped_) return;
      if (requester_->next_deadline() <= now) requester_->on_timer(now);
      Port::Sending sending(*port_, way());
      send_requests(now, sending);
    }));
}

engine::RcRequester::Counters RcConnection::repairs() {
  engine::RcRequester::Counters found;
  if (const auto queue = queue_.lock())
    port_->conclude_later(queue->answered([&] {
      if (requester_) found = requester_->counters();
    }));
  return found;
}

void RcConnection::send_answers(base::Instant now) {
  if (!responder_.has_answers()) return;
  Port::Sending sending(*port_, way());
  unsigned sent = 0;
  while (sent < kBurst && responder_.poll_transmit(now, sending)) ++sent;
  if (responder_.has_answers()) port_->schedule(*this, now, now);
}

bool RcConnection::gather(uint32_t number, uint64_t offset, std::span<std::byte> into) {
  const auto queue = queue_.lock();
  if (!queue) return false;
  const SendRequest& request = queue->request(number);
  verbs::HazardGuard guard(*self_, process_.slot(), verbs::AccessSide::kRequester);
  verbs::RequestSlice part;
  return verbs::guard_request(guard, request) &&
         verbs::slice_request(process_.arena(), peering_.domain, request, offset, into.size(), 0, part) ==
             Verdict::kDone &&
         verbs::gather_own(into.data(), part.span());
}

bool RcConnection::scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                           engine::Tail tail) {
  const auto queue = queue_.lock();
  if (!queue) return false;
  const SendRequest& request = queue->request(number);
  verbs::HazardGuard guard(*self_, process_.slot(), verbs::AccessSide::kRequester);
  verbs::RequestSlice part;
  return verbs::guard_request(guard, request) &&
         verbs::slice_request(process_.arena(), peering_.domain, request, offset, from.size(),
                              IBV_ACCESS_LOCAL_WRITE, part) == Verdict::kDone &&
         verbs::scatter_own(part.span(), from.data(), from.size(), tail);
}

void RcConnection::ended(uint32_t, RequestStatus status) {
  if (const auto queue = queue_.lock()) queue->ended(status_of(status), Verdict::kDone);
}

}  // namespace verbena::wire
