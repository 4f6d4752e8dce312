#include "verbs/responder.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "verbs/access_burst.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/scatter.hpp"

namespace verbena::verbs {

using engine::Arrival;
using engine::Copied;
using engine::RemoteRange;
using engine::RemoteUse;
using engine::Tail;
using engine::Verdict;

namespace {

bool answers(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

uint8_t flags_of(const Arrival& arrival) {
  return static_cast<uint8_t>((arrival.has_imm ? arena::kHasImm : 0) |
                              (arrival.solicited ? arena::kSolicited : 0) |
                              (arrival.invalidates ? arena::kHasInvalidate : 0));
}

}  // namespace

Responder::Responder(std::shared_ptr<QueueOwner> owner, base::Qpn target, const RequesterIdentity& requester)
    : keeper_(owner),
      owner_(std::move(owner)),
      target_(target),
      requester_(requester),
      entry_(owner_->arena().qp(static_cast<uint16_t>(target.value))) {}

Responder::Responder(std::shared_ptr<QueueOwner> keeper, base::Qpn target, const RequesterIdentity& requester,
                     SharedTarget shared)
    : keeper_(std::move(keeper)),
      owner_(std::move(shared.owner)),
      target_(target),
      requester_(requester),
      entry_(keeper_->arena().qp(static_cast<uint16_t>(target.value))),
      lane_(&owner_->arena().srq(static_cast<uint16_t>(shared.number))),
      lane_index_(static_cast<uint16_t>(shared.number)),
      lane_life_(shared.life),
      port_(std::move(shared.port)) {}

Verdict Responder::look_again() {
  seen_word_ = kUnseen;
  // Its owner may just be changing it, which takes no time unless that one was stopped in the middle.
  for (int tries = 0; tries < 1000; ++tries) {
    if (keeper_->gone()) return Verdict::kSilence;
    const uint64_t word = entry_.word.acquire();
    if (arena::QpWord::unpack(word).state != arena::QpWord::kChanging)
      if (const auto looked = look_at(word)) return *looked;
    if (tries > 100) ::sched_yield();
  }
  return Verdict::kSilence;
}

// Nothing: it changed meanwhile.
std::optional<Verdict> Responder::look_at(uint64_t word) {
  const auto now = arena::QpWord::unpack(word);
  if (!answers(now.state) || (bound_ && now.incarnation != incarnation_)) {  // another life, not ours
    give_back();
    return Verdict::kSilence;
  }

  const uint32_t type_and_rnr = entry_.type_and_rnr.get();
  const bool connected = is_connected_to_us(type_and_rnr >> 8);
  const uint32_t domain = entry_.domain.get();
  const uint32_t access = entry_.access.get();
  const uint32_t reads = entry_.reads.get();
  const uint32_t cq = entry_.cq.get();
  const uint64_t receives_at = entry_.receives_at.get();
  const uint32_t mask = entry_.receives_mask.get();
  const uint32_t stride = entry_.receives_stride.get();
  const uint32_t srq = entry_.srq_plus_one.get();
  const uint64_t ring_at = entry_.ring_at.get();
  const uint32_t ring_id = entry_.ring_id.get();
  const arena::RingShape shape{entry_.ring_slots.get(), entry_.ring_payload.get()};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry_.word.get() != word) return {};

  if (!connected) return Verdict::kSilence;
  // What its owner wrote can't be trusted to make sense.
  const uint64_t queue_size = (uint64_t{mask} + 1) * stride;
  if (cq >= arena::kCqBells || srq > arena::kSrqEntries) return Verdict::kCorrupt;
  arena::SharedReceives shared;
  if (requester_.type == IBV_QPT_XRC_SEND) {
    // It has no receives.
  } else if (srq != 0) {
    shared = arena::SharedReceives(owner_->arena(), static_cast<uint16_t>(srq - 1));
    // Unless it has just gone, after the queue pair.
    if (!shared.sane()) return entry_.word.get() == word ? std::optional(Verdict::kCorrupt) : std::nullopt;
  } else if ((mask & (mask + 1)) != 0 || stride < sizeof(arena::ReceiveEntry) || stride % 16 != 0 ||
             stride > 65536 || owner_->arena().in_tables_heap(receives_at, queue_size) == nullptr) {
    return Verdict::kCorrupt;
  }
  if (!port_) port_ = owner_->port(ring_at, ring_id, shape);
  if (!port_) return Verdict::kCorrupt;
  incarnation_ = now.incarnation;
  if (!bound_ && !bind()) return Verdict::kSilence;

  domain_ = domain;
  // Without room for READs and atomics the queue pair allows none, whatever its flags say.
  access_ = reads != 0 ? access : access & ~(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  cq_ = static_cast<uint16_t>(cq);
  rnr_timer_ = static_cast<uint8_t>(type_and_rnr & 0xff);
  receives_at_ = receives_at;
  receives_mask_ = mask;
  receives_stride_ = srq != 0 ? shared.stride() : stride;
  receives_domain_ = srq != 0 ? shared.domain() : domain;
  shared_ = shared;
  if (lane_ != nullptr)
    if (const auto looked = look_at_lane(domain); looked != Verdict::kDone) return looked;
  has_channel_ = owner_->arena().cq(cq_).channel.get() >= 0;
  seen_word_ = word;
  return Verdict::kDone;
}

// XRC: keys, receives and completions are the shared queue's, rights and connection the queue pair's.
Verdict Responder::look_at_lane(uint32_t domain) {
  shared_ = arena::SharedReceives(owner_->arena(), lane_index_);
  const uint32_t cq = lane_->cq.get();
  const bool sane = shared_.sane();
  const uint32_t lane_domain = lane_->xrcd.get();
  receives_stride_ = shared_.stride();
  receives_domain_ = domain_ = shared_.domain();
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!lane_holds() || lane_domain == 0 || lane_domain != domain) return Verdict::kNoSharedQueue;
  if (!sane || cq >= arena::kCqBells) return Verdict::kCorrupt;
  cq_ = static_cast<uint16_t>(cq);
  return Verdict::kDone;
}

// Identity (DESIGN 2.3): it must be connected to us, and expect the number we begin with.
bool Responder::is_connected_to_us(uint32_t type) const {
  const auto wanted = requester_.type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : requester_.type;
  if (type != static_cast<uint32_t>(wanted)) return false;
  if (requester_.type == IBV_QPT_UD) return true;
  // An unreliable connection takes the first packet of a message with any number (IBA 9.8.2.2.1).
  return entry_.peer_qpn.get() == requester_.qpn.value && entry_.peer_gid[0].get() == requester_.gid[0] &&
         entry_.peer_gid[1].get() == requester_.gid[1] &&
         (requester_.type == IBV_QPT_UC || entry_.rq_psn.get() == requester_.first_psn);
}

// The first to deliver in a life of the target's writes its name there: an earlier or later life of our own
// queue pair then finds itself a stranger, as its PSNs would make it on a wire.
bool Responder::bind() {
  const uint64_t name = uint64_t{requester_.qpn.value} << 32 | requester_.incarnation;
  auto& word = keeper_->arena().binding(static_cast<uint16_t>(target_.value)).bound.atomic();
  uint64_t expected = 0;
  bound_ = word.compare_exchange_strong(expected, name) || expected == name;
  return bound_;
}

bool Responder::receive_waits() {
  if (shared_) return claim_ || shared_.any_posted();
  posted_ = entry_.posted.acquire();
  fits_plus_one_ = entry_.fits_plus_one.get();
  return posted_ != consumed_;
}

uint32_t Responder::credits() {
  if (shared_) return UINT32_MAX;  // IBA 9.7.7.2.5: what others may take as well is promised to nobody
  (void)receive_waits();
  return std::min(posted_ - consumed_, receives_mask_ + 1);
}

bool Responder::wait_for_receive() {
  if (lane_ == nullptr)
    owner_->arena().binding(static_cast<uint16_t>(target_.value)).waiting.atomic().store(1);
  if (shared_)
    if (arena::SrqClaims* claims = shared_.claims(); claims != nullptr) claims->waiting.atomic().store(1);
  return !receive_waits();
}

// The receive is ours until its message is delivered, or its queue pair leaves, or we do.
Verdict Responder::claim_receive() {
  if (claim_) return Verdict::kDone;
  arena::SharedReceives::Claim claim;
  switch (shared_.claim(static_cast<uint16_t>(target_.value), requester_.accessor, claim)) {
    case arena::SharedReceives::Claimed::kNone:
      return Verdict::kNotReady;
    case arena::SharedReceives::Claimed::kBusy:
      return Verdict::kNoRoom;
    case arena::SharedReceives::Claimed::kCorrupt:
      return Verdict::kCorrupt;
    case arena::SharedReceives::Claimed::kYes:
      break;
  }
  claim_ = claim;
  // The owner looks for claims when its queue pair leaves: it saw this one, or we see that it has left.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return reach();
}

void Responder::give_back() {
  if (!claim_) return;
  shared_.give_back(*claim_);
  claim_.reset();
  (void)call_for_merge();
}

const arena::ReceiveEntry* Responder::receive_entry(uint32_t number) const {
  const uint64_t at = receives_at_ + uint64_t{number & receives_mask_} * receives_stride_;
  // in_tables_heap() vouched for the whole queue.
  return reinterpret_cast<const arena::ReceiveEntry*>(owner_->arena().in_tables_heap(receives_at_, 0) +
                                                      (at - receives_at_));
}

Verdict Responder::take_credit(uint64_t length) { return confirmed(credit_for(length)); }

// The common case looks at two cached words only.
Verdict Responder::credit_for(uint64_t length) {
  if (shared_) {
    const Verdict claimed = claim_receive();
    return claimed == Verdict::kDone ? look_at_receive(length) : claimed;
  }
  if (posted_ == consumed_ && !receive_waits()) return Verdict::kNotReady;
  if (posted_ - consumed_ > receives_mask_ + 1) return Verdict::kCorrupt;
  if (length < fits_plus_one_) return Verdict::kDone;
  return look_at_receive(length);
}

Verdict Responder::look_at_receive(uint64_t length) {
  if (length == 0) return Verdict::kDone;  // touches no memory, so none is at fault
  const auto* receive = current_receive();
  if (receive == nullptr) return Verdict::kCorrupt;
  if (length > receive->capacity.get()) return Verdict::kTooLong;
  // No promise holds for it: its keys may have gone since it was posted, or never been good.
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(receive + 1);
  const unsigned count = receive->count.get();
  if (count > (receives_stride_ - sizeof *receive) / sizeof *pieces) return Verdict::kCorrupt;
  uint64_t rest = length;
  for (unsigned i = 0; i < count && rest > 0; ++i) {
    const uint64_t part = std::min<uint64_t>(rest, pieces[i].length.get());
    Region region;
    const KeyUse use{pieces[i].lkey.get(), pieces[i].address.get(), part, receives_domain_,
                     IBV_ACCESS_LOCAL_WRITE};
    if (check_key(owner_->arena(), use, region) != Verdict::kDone) return Verdict::kBadReceive;
    rest -= part;
  }
  return Verdict::kDone;
}

Verdict Responder::begin_receive(const Arrival& arrival) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  return take_credit(arrival.kind == Arrival::Kind::kSend ? arrival.length : 0);
}

Verdict Responder::finish_receive(const Arrival& arrival) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  if (shared_ && !claim_) return Verdict::kSilence;
  if (auto allowed = may_invalidate(arrival); allowed != Verdict::kDone) return allowed;
  const arena::Record record{.kind = arrival.kind == Arrival::Kind::kWriteImm ? arena::RecordKind::kWriteImm
                                                                              : arena::RecordKind::kPlaced,
                             .flags = flags_of(arrival),
                             .qp = target_.value,
                             .incarnation = incarnation_,
                             .length = static_cast<uint32_t>(arrival.length),
                             .imm = arrival.imm};
  return send_record(record, {}, 0);
}

Verdict Responder::deliver(const Arrival& arrival, std::span<const iovec> from) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  if (auto allowed = may_invalidate(arrival); allowed != Verdict::kDone) return allowed;
  if (auto credit = take_credit(arrival.length); credit != Verdict::kDone) return credit;
  const arena::Record record{.kind = arena::RecordKind::kSend,
                             .flags = flags_of(arrival),
                             .qp = target_.value,
                             .incarnation = incarnation_,
                             .length = static_cast<uint32_t>(arrival.length),
                             .imm = arrival.imm};
  return send_record(record, from, arrival.length);
}

Verdict Responder::deliver_datagram(const Arrival& arrival, std::span<const iovec> from) {
  if (auto reached = reach(); reached != Verdict::kDone) return reached;
  const uint64_t length = sizeof(ibv_grh) + arrival.length;
  if (auto credit = take_credit(length); credit != Verdict::kDone) {
    if (credit == Verdict::kTooLong || credit == Verdict::kSilence) give_back();
    return credit;
  }
  uint32_t source = arrival.source.value;
  std::array<iovec, 8> pieces{{{&source, sizeof source}}};
  if (from.size() >= pieces.size()) return Verdict::kNoRoom;
  std::ranges::copy(from, pieces.begin() + 1);
  const arena::Record record{.kind = arena::RecordKind::kDatagram,
                             .flags = flags_of(arrival),
                             .qp = target_.value,
                             .incarnation = incarnation_,
                             .length = static_cast<uint32_t>(sizeof source + length),
                             .imm = arrival.imm};
  const Verdict sent = send_record(record, std::span(pieces).first(from.size() + 1), record.length);
  if (sent != Verdict::kDone) give_back();  // it is lost: nobody repeats it
  return sent;
}

Verdict Responder::send_record(arena::Record record, std::span<const iovec> from, uint64_t length) {
  if (claim_) {
    record.flags |= arena::kNamesReceive;
    record.receive = claim_->entry;
  }
  if (lane_ != nullptr) {
    record.flags |= arena::kForShared;
    record.incarnation = lane_index_;
  }
  Verdict verdict = put(record, from, length);
  if (verdict == Verdict::kNoRoom && owner_->empty_rings(cq_)) verdict = put(record, from, length);
  if (verdict != Verdict::kDone) return verdict == Verdict::kNoRoom ? call_for_merge() : verdict;
  if (record.kind != arena::RecordKind::kFail) ++consumed_;
  // Its program may wait for the event that says so before it polls.
  if (std::exchange(claim_, std::nullopt).value_or(arena::SharedReceives::Claim{}).below_limit)
    (void)call_for_merge();
  if (has_channel_) ring_bell((record.flags & arena::kSolicited) != 0);
  return Verdict::kDone;
}

Verdict Responder::put(const arena::Record& record, std::span<const iovec> from, uint64_t length) {
  const std::lock_guard lock(port_->lock);
  auto& ring = port_->ring;
  if (!ring.has_slot()) return Verdict::kNoRoom;
  std::byte* bytes = ring.slot_bytes();
  if (length > arena::kBytesInSlot) {
    const auto room = ring.payload_room(static_cast<uint32_t>(length));
    if (room.empty()) return Verdict::kNoRoom;
    bytes = room.data();
  }
  if (requester_.by_network)
    gather_plainly(bytes, from);
  else if (!gather_own(bytes, from))
    return Verdict::kFaultHere;
  ring.publish(record, length > arena::kBytesInSlot);
  if (length > 0) last_in_ring_ = ring.tail();
  if ((record.flags & arena::kHasInvalidate) != 0) {
    AccessBurst::forget_targets();
    invalidating_.push_back(record.imm);
    last_invalidation_ = ring.tail();
  }
  return Verdict::kDone;
}

// The owner arms its queue, then polls once more; we publish, then look whether it is armed. The fence makes
// sure that one of the two sees the other.
void Responder::ring_bell(bool solicited) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& armed = owner_->arena().bell(cq_).armed;
  uint32_t arm = armed.get();
  const auto wanted = static_cast<uint32_t>(arena::CqArm::kAny);
  if (arm == 0 || (arm != wanted && !solicited)) return;
  if (armed.atomic().exchange(0) != 0) owner_->ring_channel(cq_);
}

Verdict Responder::fail(Verdict why, bool consumes_receive) {
  if (auto reached = reach(); reached != Verdict::kDone)
    return Verdict::kDone;  // it failed by itself already
  if (shared_ && consumes_receive) (void)claim_receive();
  const arena::Record record{.kind = arena::RecordKind::kFail,
                             .flags = static_cast<uint8_t>(consumes_receive ? arena::kHasImm : 0),
                             .qp = target_.value,
                             .incarnation = incarnation_,
                             .length = static_cast<uint32_t>(why)};
  const auto sent = send_record(record, {}, 0);
  if (sent != Verdict::kDone) return sent;
  if (has_channel_) ring_bell(true);
  (void)call_for_merge();  // its program may not poll at all
  return sent;
}

Verdict Responder::fail_receive(Verdict why, bool consumes_receive) {
  if (reach() != Verdict::kDone) return Verdict::kDone;
  if (consumes_receive) (void)claim_receive();
  if (!claim_) return Verdict::kDone;
  const arena::Record record{.kind = arena::RecordKind::kFail,
                             .flags = arena::kSolicited,
                             .qp = target_.value,
                             .length = static_cast<uint32_t>(why)};
  return send_record(record, {}, 0);
}

// A program that doesn't poll has a helper thread that takes what is in its rings.
Verdict Responder::call_for_merge() {
  owner_->arena().bell(cq_).attention.atomic().fetch_or(arena::kMerge);
  owner_->wake_helper();
  return Verdict::kNoRoom;
}

}  // namespace verbena::verbs
