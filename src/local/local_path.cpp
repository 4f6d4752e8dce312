#include "local/local_path.hpp"

#include <algorithm>

#include "local/exchange.hpp"
#include "local/lanes.hpp"
#include "verbs/scatter.hpp"

namespace verbena::local {

using engine::Arrival;
using engine::Tail;
using engine::Verdict;
using verbs::Responder;
using verbs::SendOutcome;
using verbs::SendProgress;
using verbs::SendRequest;

namespace {

constexpr uint64_t kChunk = 256 * 1024;
// How long an unreliable message waits for room in its peer's ring before it is lost; as on the wire.
constexpr base::Duration kPatience = base::milliseconds(5);

ibv_wc_status status_of(Verdict verdict) {
  switch (engine::nak_of(verdict)) {
    case engine::Nak::kRemoteAccess:
      return IBV_WC_REM_ACCESS_ERR;
    case engine::Nak::kInvalidRequest:
      return IBV_WC_REM_INV_REQ_ERR;
    case engine::Nak::kOperational:
      return IBV_WC_REM_OP_ERR;
    case engine::Nak::kNone:
      break;
  }
  return IBV_WC_LOC_PROT_ERR;
}

Arrival arrival_of(const SendRequest& request) {
  const bool write = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  return {.kind = write ? Arrival::Kind::kWriteImm : Arrival::Kind::kSend,
          .length = request.length,
          .has_imm = write || request.opcode == IBV_WR_SEND_WITH_IMM,
          .solicited = (request.flags & IBV_SEND_SOLICITED) != 0,
          .imm = request.imm,
          .invalidates = request.opcode == IBV_WR_SEND_WITH_INV};
}

}  // namespace

LocalPath::LocalPath(verbs::Process& process, std::shared_ptr<Exchange> exchange, Connection connection)
    : process_(process), exchange_(std::move(exchange)), connection_(std::move(connection)) {}

LocalPath::~LocalPath() {
  if (cookie_ != 0) exchange_->forget(cookie_, *connection_.peer);
}

void LocalPath::begin(uint32_t sq_psn) {
  const verbs::RequesterIdentity identity{.qpn = connection_.own,
                                          .incarnation = connection_.incarnation,
                                          .first_psn = sq_psn,
                                          .gid = {connection_.own_gid[0], connection_.own_gid[1]},
                                          .accessor = process_.slot(),
                                          .type = connection_.type};
  if (connection_.type == IBV_QPT_XRC_SEND) {
    auto lanes = std::make_unique<Lanes>(process_, exchange_, Lanes::Role::kRequester, connection_.own);
    xrc_ = std::make_unique<verbs::XrcResponder>(connection_.peer, connection_.target, identity,
                                                 std::move(lanes));
    responder_ = xrc_.get();
  } else {
    plain_ = std::make_unique<Responder>(connection_.peer, connection_.target, identity);
    responder_ = plain_.get();
  }
}

uint8_t LocalPath::rnr_timer_code() const { return xrc_ ? xrc_->rnr_timer_code() : plain_->rnr_timer_code(); }

bool LocalPath::ask_for_receive() { return xrc_ ? xrc_->wait_for_receive() : plain_->wait_for_receive(); }

void LocalPath::tell_posted() {
  auto& waiting = process_.arena().binding(static_cast<uint16_t>(connection_.own.value)).waiting.atomic();
  if (waiting.exchange(0) == 0) return;
  (void)connection_.peer->send({.kind = arena::LetterKind::kPosted, .qp = connection_.target.value});
}

void LocalPath::tell(verbs::MigrationWord word) {
  const auto& entry = connection_.peer->arena().qp(static_cast<uint16_t>(connection_.target.value));
  (void)connection_.peer->send({.kind = arena::LetterKind::kMigration,
                                .qp = connection_.target.value,
                                .incarnation = arena::QpWord::unpack(entry.word.acquire()).incarnation,
                                .operation = static_cast<uint32_t>(word)});
}

void LocalPath::rearm() {
  migration_.rearm();
  tell(verbs::MigrationWord::kRearmed);
}

void LocalPath::migrate() {
  if (migration_.migrate([] {})) tell(verbs::MigrationWord::kMigrated);
}

// What packets say by their MigReq bit, two ends that share memory say by letter.
void LocalPath::hear(verbs::MigrationWord word) {
  switch (word) {
    case verbs::MigrationWord::kRearmed:
      if (migration_.arm() || migration_.state() == IBV_MIG_ARMED) tell(verbs::MigrationWord::kArmed);
      return;
    case verbs::MigrationWord::kArmed:
      migration_.arm();
      return;
    case verbs::MigrationWord::kMigrated:
      (void)migration_.migrate([] {});
      return;
  }
}

Verdict LocalPath::run(const SendRequest& request, SendProgress& progress, uint64_t budget) {
  if (xrc_)
    if (auto aimed = xrc_->aim(request.srq); aimed != Verdict::kDone) return aimed;
  switch (request.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return send(request, progress, budget);
    case IBV_WR_RDMA_READ:
      return read(request, progress, budget);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
      return atomic(request, progress);
    default:
      return write(request, progress, budget);
  }
}

SendOutcome LocalPath::advance(const SendRequest& request, SendProgress& progress, uint64_t budget) {
  using Kind = SendOutcome::Kind;
  Verdict verdict = Verdict::kDone;
  if (!progress.failing) {
    verdict = run(request, progress, budget);
    // What is wrong here comes first (as over the network, where nothing is sent then), but is looked at
    // last: mostly nothing is wrong anywhere.
    if (verdict != Verdict::kDone && progress.done == 0 && !progress.asked && !may_use_own(request))
      verdict = Verdict::kFaultHere;
    if (connection_.type == IBV_QPT_UC) return end_unanswered(verdict, request, progress);
    switch (verdict) {
      case Verdict::kDone:
        if (progress.done < request.length) return {Kind::kMore};
        return {Kind::kDone};
      case Verdict::kNotReady:
        return {Kind::kNotReady, IBV_WC_SUCCESS, verdict};
      case Verdict::kSilence:
      case Verdict::kNoRoom:
      case Verdict::kAsk:
        return {Kind::kSilent, IBV_WC_SUCCESS, verdict};
      case Verdict::kFaultHere:
        return {Kind::kFailed, IBV_WC_LOC_PROT_ERR, verdict};
      default:
        progress.failing = true;
        progress.why = verdict;
    }
  }
  // The request is at fault: its target learns first, then our own completion tells.
  const bool consumes =
      request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || request.opcode == IBV_WR_SEND_WITH_INV;
  if (responder_->fail(progress.why, consumes) == Verdict::kNoRoom)
    return {Kind::kSilent, IBV_WC_SUCCESS, progress.why};
  return {Kind::kFailed, status_of(progress.why), progress.why};
}

// IBA 9.8.2.2: nobody answers, so whatever becomes of it over there, the request has been sent.
SendOutcome LocalPath::end_unanswered(Verdict verdict, const SendRequest& request, SendProgress& progress) {
  using Kind = SendOutcome::Kind;
  switch (verdict) {
    case Verdict::kDone:
      full_since_ = {};
      return {progress.done < request.length ? Kind::kMore : Kind::kDone};
    case Verdict::kFaultHere:
      responder_->abandon_receive();
      return {Kind::kFailed, IBV_WC_LOC_PROT_ERR, verdict};
    case Verdict::kNoRoom: {
      const base::Instant now = base::now();
      if (full_since_ == base::Instant{}) full_since_ = now;
      if (now - full_since_ < kPatience && !peer_gone()) return {Kind::kSilent, IBV_WC_SUCCESS, verdict};
      responder_->abandon_receive();
      return {Kind::kDone};
    }
    case Verdict::kBadReceive:
    case Verdict::kCorrupt:
      // It would stand in the way of every message to come. Untold, the next one finds it again.
      (void)responder_->fail(verdict, false);
      return {Kind::kDone};
    default:
      responder_->abandon_receive();
      return {Kind::kDone};
  }
}

Verdict LocalPath::slice(const SendRequest& request, uint64_t offset, uint64_t length, uint32_t access,
                         Slice& out) const {
  return verbs::slice_request(process_.arena(), connection_.domain, request, offset, length, access, out);
}

bool LocalPath::may_use_own(const SendRequest& request) const {
  Slice whole;
  const uint32_t access = verbs::is_fetch(request.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
  return slice(request, 0, request.length, access, whole) == Verdict::kDone;
}

template <typename Step>
Verdict LocalPath::in_pieces(const SendRequest& request, SendProgress& progress, uint64_t budget,
                             uint32_t access, Step step) {
  while (progress.done < request.length && budget > 0) {
    const uint64_t length = std::min({request.length - progress.done, budget, kChunk});
    verbs::HazardGuard guard(exchange_->self(), process_.slot(), verbs::AccessSide::kRequester);
    if (!verbs::guard_request(guard, request)) return Verdict::kNoRoom;
    Slice part;
    if (auto ours = slice(request, progress.done, length, access, part); ours != Verdict::kDone) return ours;
    const bool last = progress.done + length == request.length;
    if (auto moved = step(progress.done, length, part, last ? Tail::kLast : Tail::kAnyOrder);
        moved != Verdict::kDone)
      return moved;
    progress.done += length;
    budget -= length;
  }
  return Verdict::kDone;
}

Verdict LocalPath::send(const SendRequest& request, SendProgress& progress, uint64_t budget) {
  const Arrival arrival = arrival_of(request);
  if (request.length <= Responder::kLongestInRing && progress.done == 0) {
    Slice all;
    if (auto ours = slice(request, 0, request.length, 0, all); ours != Verdict::kDone) return ours;
    const Verdict verdict = responder_->deliver(arrival, all.span());
    if (verdict == Verdict::kDone) progress.done = request.length;
    // A ring without room for the bytes may still have some for a notice: then they go where longer ones go.
    if (verdict != Verdict::kNoRoom || request.length == 0) return verdict;
  }
  if (!progress.checked) {
    // A receive that is taken for nothing would be lost to a shared queue.
    if (!may_use_own(request)) return Verdict::kFaultHere;
    if (auto begun = responder_->begin_receive(arrival); begun != Verdict::kDone) return begun;
    progress.checked = true;
  }
  const Verdict moved =
      in_pieces(request, progress, budget, 0, [&](uint64_t offset, uint64_t, const Slice& part, Tail tail) {
        return responder_->place(offset, part.span(), tail);
      });
  if (moved != Verdict::kDone || progress.done < request.length) return moved;
  return responder_->finish_receive(arrival);
}

Verdict LocalPath::write(const SendRequest& request, SendProgress& progress, uint64_t budget) {
  const Arrival arrival = arrival_of(request);
  if (!progress.checked) {
    const engine::RemoteRange all{request.rkey, request.remote_address, request.length};
    if (auto allowed = responder_->check(all, engine::RemoteUse::kWrite); allowed != Verdict::kDone)
      return allowed;
    if (arrival.has_imm) {
      if (!may_use_own(request)) return Verdict::kFaultHere;
      if (auto begun = responder_->begin_receive(arrival); begun != Verdict::kDone) return begun;
    }
    progress.checked = true;
  }
  const Verdict moved = in_pieces(
      request, progress, budget, 0, [&](uint64_t offset, uint64_t length, const Slice& part, Tail tail) {
        return responder_->write({request.rkey, request.remote_address + offset, length}, part.span(), tail);
      });
  if (moved != Verdict::kDone || progress.done < request.length || !arrival.has_imm) return moved;
  return responder_->finish_receive(arrival);
}

Verdict LocalPath::read(const SendRequest& request, SendProgress& progress, uint64_t budget) {
  if (!progress.checked) {
    const engine::RemoteRange all{request.rkey, request.remote_address, request.length};
    if (auto allowed = responder_->check(all, engine::RemoteUse::kRead); allowed != Verdict::kDone)
      return allowed;
    progress.checked = true;
  }
  return in_pieces(
      request, progress, budget, IBV_ACCESS_LOCAL_WRITE,
      [&](uint64_t offset, uint64_t length, const Slice& part, Tail tail) {
        return responder_->read({request.rkey, request.remote_address + offset, length}, part.span(), tail);
      });
}

Verdict LocalPath::atomic(const SendRequest& request, SendProgress& progress) {
  const bool writes = request.opcode == IBV_WR_ATOMIC_WRITE;
  engine::AtomicRequest wanted{.kind = writes ? engine::AtomicKind::kWrite
                                       : request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
                                           ? engine::AtomicKind::kFetchAdd
                                           : engine::AtomicKind::kCompareSwap,
                               .key = request.rkey,
                               .address = request.remote_address,
                               .first = request.compare_add,
                               .second = request.swap};
  uint64_t before = 0;
  if (writes && (!progress.asked || xrc_))
    if (auto ours = load_value(request, wanted.first); ours != Verdict::kDone) return ours;
  const Verdict verdict = run_at_owner(wanted, progress, before);
  if (verdict != Verdict::kDone) return verdict;
  progress.done = request.length;
  return writes ? Verdict::kDone : store_result(request, before);
}

Verdict LocalPath::run_at_owner(const engine::AtomicRequest& wanted, SendProgress& progress,
                                uint64_t& before) {
  if (xrc_) {
    const Verdict verdict = xrc_->atomic(wanted, before);
    progress.asked = verdict == Verdict::kAsk;
    return verdict;
  }
  if (!progress.asked) {
    if (auto verdict = plain_->atomic(wanted, before); verdict != Verdict::kAsk) return verdict;
    cookie_ = exchange_->ask(*connection_.peer, connection_.own, connection_.target,
                             plain_->target_incarnation(), wanted);
    progress.asked = cookie_ != 0;
    if (cookie_ == 0) return Verdict::kNoRoom;
  }
  const Verdict verdict = exchange_->answer(cookie_, before);
  if (verdict != Verdict::kAsk) cookie_ = 0;
  return verdict;
}

Verdict LocalPath::load_value(const SendRequest& request, uint64_t& value) {
  verbs::HazardGuard guard(exchange_->self(), process_.slot(), verbs::AccessSide::kRequester);
  if (!verbs::guard_request(guard, request)) return Verdict::kFaultHere;
  Slice source;
  if (auto ours = slice(request, 0, sizeof value, 0, source); ours != Verdict::kDone) return ours;
  return verbs::gather_own(reinterpret_cast<std::byte*>(&value), source.span()) ? Verdict::kDone
                                                                                : Verdict::kFaultHere;
}

Verdict LocalPath::store_result(const SendRequest& request, uint64_t before) {
  verbs::HazardGuard guard(exchange_->self(), process_.slot(), verbs::AccessSide::kRequester);
  if (!verbs::guard_request(guard, request)) return Verdict::kFaultHere;
  Slice result;
  if (auto ours = slice(request, 0, sizeof before, IBV_ACCESS_LOCAL_WRITE, result); ours != Verdict::kDone)
    return ours;
  return verbs::scatter_own(result.span(), reinterpret_cast<const std::byte*>(&before), sizeof before,
                            Tail::kLast)
             ? Verdict::kDone
             : Verdict::kFaultHere;
}

}  // namespace verbena::local
