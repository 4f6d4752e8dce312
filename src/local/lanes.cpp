#include "local/lanes.hpp"

#include "verbs/completion_queue.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::local {

using engine::Verdict;
using verbs::SharedTarget;

namespace {

// How long the keeper waits for the answer to an atomic operation before it turns to other packets; the
// requester sends again then, and the answer is there.
constexpr base::Duration kKeeperWaits = base::milliseconds(2);

bool same(const engine::AtomicRequest& a, const engine::AtomicRequest& b) {
  return a.kind == b.kind && a.key == b.key && a.address == b.address && a.first == b.first &&
         a.second == b.second;
}

}  // namespace

Lanes::~Lanes() {
  forget(ring_);
  forget(atomic_);
}

void Lanes::forget(Question& question) {
  if (question.cookie != 0) exchange_->forget(question.cookie, *question.owner);
  question = {};
}

// kAsk: not yet. Otherwise the question is done with.
Verdict Lanes::answer(Question& question, arena::Letter& letter) {
  Verdict verdict = exchange_->answer(question.cookie, letter);
  if (verdict == Verdict::kAsk) {
    if (!question.owner->gone()) return verdict;
    forget(question);
    return Verdict::kNoSharedQueue;
  }
  question = {};
  return verdict;
}

Verdict Lanes::find(uint32_t srq, SharedTarget& out) {
  const base::Slot slot = base::Qpn{srq}.slot();
  if (slot == process_.slot()) return find_own(srq, out);
  auto owner = exchange_->neighbour(slot);
  const bool known = owner != nullptr && !owner->gone();
  if (role_ == Role::kRequester && !known) owner = exchange_->introduce(slot);
  if (owner == nullptr || owner->gone()) return Verdict::kNoSharedQueue;
  const auto& entry = owner->arena().srq(static_cast<uint16_t>(srq));
  out = {.owner = owner, .number = srq, .life = entry.life.acquire()};
  if (out.life == 0 || entry.xrcd.get() == 0) return Verdict::kNoSharedQueue;
  if (role_ == Role::kKeeper) {
    const uint64_t at = entry.ring_at.acquire();
    out.port = at != 0
                   ? owner->port(at, entry.ring_id.get(), {entry.ring_slots.get(), entry.ring_payload.get()})
                   : nullptr;
    return out.port != nullptr ? Verdict::kDone : Verdict::kNoSharedQueue;
  }
  if (ring_.cookie != 0 && (ring_.srq != srq || ring_.owner != owner)) forget(ring_);
  if (ring_.cookie == 0) {
    const uint32_t cookie = exchange_->ask(
        *owner, own_, {.kind = arena::LetterKind::kOpenLane, .qp = srq, .incarnation = out.life});
    if (cookie == 0) return Verdict::kNoRoom;
    ring_ = {.cookie = cookie, .srq = srq, .owner = owner, .atomic = {}};
    return Verdict::kAsk;
  }
  arena::Letter letter;
  const Verdict verdict = answer(ring_, letter);
  return verdict == Verdict::kDone ? take_ring(*owner, letter, out) : verdict;
}

Verdict Lanes::take_ring(Neighbour& owner, const arena::Letter& letter, SharedTarget& out) {
  out.port = owner.port(letter.address, letter.key,
                        {static_cast<uint32_t>(letter.first), static_cast<uint32_t>(letter.second)});
  return out.port != nullptr ? Verdict::kDone : Verdict::kCorrupt;
}

// Ours: nobody needs to be asked.
Verdict Lanes::find_own(uint32_t srq, SharedTarget& out) {
  const auto queue = process_.hold_srq(srq);
  if (!queue || !queue->config().cq) return Verdict::kNoSharedQueue;
  auto owner = exchange_->neighbour(process_.slot());
  const auto ring = queue->config().cq->inbound(process_.slot(), owner->epoch());
  if (!ring) return Verdict::kNoSharedQueue;
  queue->add_sender(process_.slot());
  out = {.owner = owner,
         .number = srq,
         .life = queue->life(),
         .port = owner->port(ring->offset, ring->id, ring->shape)};
  return out.port != nullptr ? Verdict::kDone : Verdict::kCorrupt;
}

Verdict Lanes::run_atomic(const SharedTarget& lane, const engine::AtomicRequest& request, uint64_t& before) {
  if (atomic_.cookie != 0 && (atomic_.srq != lane.number || !same(atomic_.atomic, request))) forget(atomic_);
  if (atomic_.cookie == 0) {
    auto owner = exchange_->neighbour(base::Qpn{lane.number}.slot());
    if (owner == nullptr || owner.get() != lane.owner.get()) return Verdict::kNoSharedQueue;
    const uint32_t cookie = exchange_->ask(*owner, own_,
                                           {.kind = arena::LetterKind::kSharedAtomic,
                                            .qp = lane.number,
                                            .incarnation = lane.life,
                                            .key = request.key,
                                            .operation = static_cast<uint32_t>(request.kind),
                                            .address = request.address,
                                            .first = request.first,
                                            .second = request.second});
    if (cookie == 0) return Verdict::kNoRoom;
    atomic_ = {.cookie = cookie, .srq = lane.number, .owner = std::move(owner), .atomic = request};
  }
  arena::Letter letter;
  Verdict verdict = answer(atomic_, letter);
  const base::Instant end = base::now() + kKeeperWaits;
  while (role_ == Role::kKeeper && verdict == Verdict::kAsk && base::now() < end) {
    (void)exchange_->read_letters();
    verdict = answer(atomic_, letter);
  }
  before = letter.first;
  return verdict;
}

}  // namespace verbena::local
