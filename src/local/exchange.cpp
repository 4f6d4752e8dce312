#include "local/exchange.hpp"

#include "verbs/key_check.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/scatter.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::local {

using engine::Verdict;

Exchange::Exchange(verbs::Process& process, std::shared_ptr<Self> self)
    : process_(process), self_(std::move(self)) {
  for (unsigned slot = 0; slot < inboxes_.size(); ++slot)
    inboxes_[slot] = arena::InboxReader(process.arena().inbox({static_cast<uint8_t>(slot)}));
  neighbours_[process.slot().value] = self_;
}

void Exchange::meet(const std::shared_ptr<Neighbour>& neighbour) {
  const std::lock_guard lock(mutex_);
  neighbours_[neighbour->slot().value] = neighbour;
}

std::shared_ptr<Neighbour> Exchange::neighbour(base::Slot slot) {
  const std::lock_guard lock(mutex_);
  return neighbours_[slot.value];
}

std::vector<std::shared_ptr<Neighbour>> Exchange::neighbours() {
  std::vector<std::shared_ptr<Neighbour>> found;
  const std::lock_guard lock(mutex_);
  for (const auto& neighbour : neighbours_)
    if (neighbour) found.push_back(neighbour);
  return found;
}

void Exchange::part(const Neighbour& neighbour) {
  const std::lock_guard lock(mutex_);
  auto& known = neighbours_[neighbour.slot().value];
  if (known.get() == &neighbour) known.reset();
}

uint32_t Exchange::ask(Neighbour& peer, base::Qpn own, base::Qpn target, uint32_t incarnation,
                       const engine::AtomicRequest& request) {
  return ask(peer, own,
             {.kind = arena::LetterKind::kAtomic,
              .qp = target.value,
              .incarnation = incarnation,
              .key = request.key,
              .operation = static_cast<uint32_t>(request.kind),
              .address = request.address,
              .first = request.first,
              .second = request.second});
}

uint32_t Exchange::ask(Neighbour& peer, base::Qpn own, arena::Letter letter) {
  if (!peer.begin_request()) return 0;
  uint32_t cookie = 0;
  {
    const std::lock_guard lock(mutex_);
    while (++last_cookie_ == 0 || questions_.contains(last_cookie_)) {
    }
    cookie = last_cookie_;
    questions_[cookie] = {.own = own, .peer = neighbours_[peer.slot().value]};
  }
  letter.cookie = cookie;
  if (peer.send(letter)) return cookie;
  forget(cookie, peer);
  return 0;
}

Verdict Exchange::answer(uint32_t cookie, uint64_t& before) {
  arena::Letter letter;
  const Verdict verdict = answer(cookie, letter);
  if (verdict != Verdict::kAsk) before = letter.first;
  return verdict;
}

Verdict Exchange::answer(uint32_t cookie, arena::Letter& letter) {
  const std::lock_guard lock(mutex_);
  const auto found = questions_.find(cookie);
  if (found == questions_.end()) return Verdict::kSilence;
  if (!found->second.answered) return Verdict::kAsk;
  letter = found->second.letter;
  const Verdict verdict = found->second.verdict;
  questions_.erase(found);
  return verdict;
}

void Exchange::forget(uint32_t cookie, Neighbour& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = questions_.find(cookie);
  if (found == questions_.end()) return;
  if (!found->second.answered) peer.end_request();
  questions_.erase(found);
}

bool Exchange::read_letters() {
  const std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) return false;
  bool any = false;
  auto& letters = process_.arena().rings_head().letters;
  for (unsigned word = 0; word < 4; ++word) {
    if (letters[word].get() == 0) continue;
    for (uint64_t from = letters[word].atomic().exchange(0); from != 0; from &= from - 1) {
      const base::Slot slot{static_cast<uint8_t>(word * 64 + static_cast<unsigned>(__builtin_ctzll(from)))};
      auto& inbox = inboxes_[slot.value];
      for (unsigned i = 0; i < arena::kInboxSlots && inbox.ready(); ++i) {
        on_letter(slot, inbox.read());
        any = true;
      }
      // More than one lap at a time is somebody who never stops: others come first.
      if (inbox.ready()) letters[word].atomic().fetch_or(uint64_t{1} << slot.value % 64);
    }
  }
  return any;
}

void Exchange::on_letter(base::Slot from, const arena::Letter& letter) {
  switch (letter.kind) {
    case arena::LetterKind::kAtomic:
    case arena::LetterKind::kSharedAtomic:
      return on_atomic(from, letter);
    case arena::LetterKind::kAnswer:
      return on_answer(from, letter);
    case arena::LetterKind::kPosted:
      return resume_sends(letter.qp);
    case arena::LetterKind::kMigration:
      return on_migration(from, letter);
    case arena::LetterKind::kOpenLane:
      return on_open_lane(from, letter);
    case arena::LetterKind::kSharedPosted:
      return on_shared_posted();
  }
}

void Exchange::on_atomic(base::Slot from, const arena::Letter& letter) {
  const auto asker = neighbour(from);
  if (!asker) return;  // not connected to anything of ours: as silent as a wire
  uint64_t before = 0;
  const Verdict verdict = run(from, letter, before);
  (void)asker->send({.kind = arena::LetterKind::kAnswer,
                     .cookie = letter.cookie,
                     .operation = static_cast<uint32_t>(verdict),
                     .first = before});
}

// The one executor for memory that can't be mapped elsewhere. Everything is checked here, too: a letter is
// only somebody's word.
Verdict Exchange::run(base::Slot from, const arena::Letter& letter, uint64_t& before) {
  if (letter.qp >> 16 != process_.slot().value) return Verdict::kSilence;
  if (letter.kind == arena::LetterKind::kSharedAtomic) {
    const auto queue = process_.hold_srq(letter.qp);
    if (!queue || !queue->config().cq || queue->life() != letter.incarnation) return Verdict::kNoSharedQueue;
    return run(letter, queue->config().domain->handle(), before);
  }
  const auto& entry = process_.arena().qp(static_cast<uint16_t>(letter.qp));
  const auto word = arena::QpWord::unpack(entry.word.acquire());
  const bool answers = word.state == IBV_QPS_RTR || word.state == IBV_QPS_RTS || word.state == IBV_QPS_SQD;
  if (!answers || word.incarnation != letter.incarnation || entry.peer_qpn.get() >> 16 != from.value)
    return Verdict::kSilence;
  const bool writes = letter.operation == static_cast<uint32_t>(engine::AtomicKind::kWrite);
  const uint32_t access = writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
  if ((entry.access.get() & access) == 0) return Verdict::kNotEnabled;
  return run(letter, entry.domain.get(), before);
}

Verdict Exchange::run(const arena::Letter& letter, uint32_t domain, uint64_t& before) {
  const engine::AtomicRequest request{.kind = static_cast<engine::AtomicKind>(letter.operation),
                                      .key = letter.key,
                                      .address = letter.address,
                                      .first = letter.first,
                                      .second = letter.second};
  const bool writes = request.kind == engine::AtomicKind::kWrite;
  if (!writes && request.kind != engine::AtomicKind::kCompareSwap &&
      request.kind != engine::AtomicKind::kFetchAdd)
    return Verdict::kCorrupt;
  const uint32_t access = writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
  verbs::HazardGuard guard(*self_, process_.slot());
  if (!guard.add(request.key)) return Verdict::kNoRoom;
  guard.seal();
  verbs::Region region;
  const verbs::KeyUse use{request.key, request.address, sizeof(uint64_t), domain, access, letter.qp};
  if (auto found = check_key(process_.arena(), use, region); found != Verdict::kDone) return found;
  if (request.address % sizeof(uint64_t) != 0 || region.address % sizeof(uint64_t) != 0)
    return Verdict::kMisaligned;
  const auto where = self_->atomic_target(request, region);
  if (!where) return Verdict::kUnmapped;
  before = verbs::run_atomic(request, where.get());
  return Verdict::kDone;
}

void Exchange::on_answer(base::Slot from, const arena::Letter& letter) {
  base::Qpn own;
  {
    const std::lock_guard lock(mutex_);
    const auto found = questions_.find(letter.cookie);
    // An answer to a question long given up, or to somebody else's.
    if (found == questions_.end() || found->second.answered || !found->second.peer ||
        found->second.peer->slot() != from)
      return;
    found->second.peer->end_request();
    found->second.answered = true;
    found->second.verdict = letter.operation <= static_cast<uint32_t>(engine::kLastVerdict)
                                ? static_cast<Verdict>(letter.operation)
                                : Verdict::kCorrupt;
    if (found->second.verdict == Verdict::kAsk) found->second.verdict = Verdict::kCorrupt;
    found->second.letter = letter;
    own = found->second.own;
  }
  resume_sends(own.value);
}

void Exchange::on_migration(base::Slot from, const arena::Letter& letter) {
  const auto queue_pair = process_.hold_qp(letter.qp);
  if (!queue_pair) return;
  const auto& entry = process_.arena().qp(static_cast<uint16_t>(letter.qp));
  if (entry.peer_qpn.get() >> 16 != from.value) return;
  queue_pair->on_migration_word(static_cast<verbs::MigrationWord>(letter.operation), letter.incarnation);
}

// XRC: a requester of another process wants to deliver into a shared queue of ours. From now on we know it,
// and hear of its end.
void Exchange::on_open_lane(base::Slot from, const arena::Letter& letter) {
  auto asker = neighbour(from);
  if (!asker || asker->gone()) asker = introduce(from);
  if (!asker) return;
  arena::Letter answer{.kind = arena::LetterKind::kAnswer,
                       .cookie = letter.cookie,
                       .operation = static_cast<uint32_t>(Verdict::kNoSharedQueue)};
  const auto queue = process_.hold_srq(letter.qp);
  if (queue && queue->config().cq && queue->life() == letter.incarnation)
    if (const auto ring = queue->config().cq->inbound(from, asker->epoch())) {
      queue->add_sender(from);
      answer.operation = static_cast<uint32_t>(Verdict::kDone);
      answer.address = ring->offset;
      answer.key = ring->id;
      answer.first = ring->shape.slots;
      answer.second = ring->shape.payload;
    }
  (void)asker->send(answer);
}

void Exchange::tell_posted(uint32_t srq, const std::bitset<256>& slots) {
  for (unsigned slot = 0; slot < slots.size(); ++slot)
    if (slots.test(slot))
      if (const auto sender = neighbour({static_cast<uint8_t>(slot)}))
        (void)sender->send({.kind = arena::LetterKind::kSharedPosted, .qp = srq});
}

void Exchange::on_shared_posted() {
  for (const auto& queue_pair : process_.queue_pairs())
    if (queue_pair->type() == IBV_QPT_XRC_SEND)
      process_.pending().add(queue_pair->send_queue().shared_from_this(), base::now());
}

void Exchange::resume_sends(uint32_t qpn) {
  if (auto queue_pair = process_.hold_qp(qpn))
    process_.pending().add(queue_pair->send_queue().shared_from_this(), base::now());
}

}  // namespace verbena::local
