#include "engine/rc_responder.hpp"

#include <algorithm>
#include <cstring>

#include "engine/message.hpp"
#include "engine/nak_syndrome.hpp"

namespace verbena::engine {

using base::Instant;
using base::Psn;
using roce::Operation;
namespace syndrome = roce::syndrome;

namespace {

constexpr size_t kAgainPerFetch = 4;  // answers asked for again pile up only as far

}  // namespace

RcResponder::RcResponder(const RcResponderConfig& config, ResponderActions& actions)
    : config_(config),
      actions_(actions),
      expected_(config.first_psn),
      jobs_(std::max(config.fetches, 1u) + 1) {
  due_.reserve(jobs_.size() * (1 + kAgainPerFetch));
}

DropReason RcResponder::on_packet(Instant, const roce::Packet& packet) {
  if (packet.bth.service != config_.service || !packet.info().request) return DropReason::kBadOpcode;
  const Psn psn = packet.bth.psn;
  if (failed_) return on_packet_after_failure(packet);
  if (psn.before(expected_)) return on_duplicate(packet);
  if (psn != expected_) return on_gap(psn);
  if (message_ == Message::kNone) srq_ = packet.xrc_srq;
  const Verdict verdict = shape_fits(packet) ? carry_out(packet) : Verdict::kBadSequence;
  if (verdict != Verdict::kDone) return refuse(verdict, packet);

  const auto& info = packet.info();
  if (info.last) msn_ = (msn_ + 1) & 0xffffff;
  if (info.last && (info.send || info.write)) message_ = Message::kNone;
  if (info.send || info.write) {
    expected_ = expected_ + 1;
    ack_due_ = ack_due_ || packet.bth.ack_request;
  } else {
    ack_due_ = false;  // its answer acknowledges what came before
  }
  if (nak_ == syndrome::kSequence && !gap_last_.before(expected_)) {
    // It only came late. What came after it was dropped all the same, and must be asked for.
    nak_psn_ = expected_;
  } else {
    gap_told_ = false;
    nak_ = 0;
  }
  return DropReason::kNone;
}

size_t RcResponder::on_more(const roce::Packet& before, MorePayloads& payloads) {
  if (failed_ || gap_told_ || nak_ != 0 || aim(srq_, false) != Verdict::kDone) return 0;
  if (before.bth.operation == Operation::kReadRequest) return more_reads(before, payloads);
  if (before.bth.psn + 1 != expected_) return 0;
  const size_t taken = message_ == Message::kNone ? more_writes(before, payloads) : more_of_message(payloads);
  expected_ = expected_ + static_cast<uint32_t>(taken);
  return taken;
}

size_t RcResponder::more_of_message(MorePayloads& payloads) {
  size_t taken = 0;
  if (message_ == Message::kWrite) {
    const uint64_t room = (write_.length - offset_ - 1) / config_.mtu;  // the last is another
    const uint64_t most = std::min<uint64_t>(room, payloads.most());
    if (most == 0) return 0;
    taken = actions_.write_more({write_.key, write_.address + offset_, most * config_.mtu}, config_.mtu,
                                Tail::kAnyOrder, payloads);
  } else {
    taken = actions_.place_more(offset_, config_.mtu, payloads);
  }
  offset_ += taken * config_.mtu;
  return taken;
}

// Each a message of its own. Any may be the last of a WRITE that its requester cut so.
size_t RcResponder::more_writes(const roce::Packet& before, MorePayloads& payloads) {
  const uint64_t each = before.payload.size();
  const uint64_t most = payloads.most();
  if (most == 0) return 0;
  const size_t taken = actions_.write_more({before.reth.key, before.reth.address + each, most * each}, each,
                                           Tail::kLast, payloads);
  msn_ = (msn_ + static_cast<uint32_t>(taken)) & 0xffffff;
  return taken;
}

size_t RcResponder::more_reads(const roce::Packet& before, MorePayloads& payloads) {
  const uint64_t each = before.reth.length;
  if (each != roce::kPair * config_.mtu || before.bth.psn + roce::kPair != expected_ || jobs_made_ == 0)
    return 0;
  const uint64_t room = kLongestEven - std::min<uint64_t>(job(jobs_made_ - 1).range.length, kLongestEven);
  const uint64_t most = std::min<uint64_t>(payloads.most(), room / each);
  const RemoteRange range{before.reth.key, before.reth.address + each, each * most};
  if (!goes_on(range, roce::kPair) || actions_.check(range, RemoteUse::kRead) != Verdict::kDone) return 0;
  uint32_t taken = 0;
  while (taken < most && payloads.next().data() != nullptr) ++taken;
  if (taken == 0) return 0;
  extend_job(taken * each, taken * roce::kPair);
  msn_ = (msn_ + taken) & 0xffffff;
  return taken;
}

// One NAK for each time that the requester goes through its packets (IBA 9.7.5.2.8 has one for a gap):
// numbers that run backwards mean that it went back, and that what was missing is missing again.
DropReason RcResponder::on_gap(Psn psn) {
  if (nak_ == 0 && (!gap_told_ || !gap_last_.before(psn))) {
    nak_ = syndrome::kSequence;
    nak_psn_ = expected_;
  }
  gap_told_ = true;
  gap_last_ = psn;
  return DropReason::kOutOfOrder;
}

// Our NAK may have been lost: without another one the requester would never learn why. It stands for all
// acknowledgements before it, too, but not for the answers of READs and atomics.
DropReason RcResponder::on_packet_after_failure(const roce::Packet& packet) {
  const Psn psn = packet.bth.psn;
  if (nak_psn_.before(psn)) return DropReason::kSilence;
  const auto& info = packet.info();
  if (psn.before(nak_psn_) && !info.send && !info.write) return replay(packet);
  nak_ = last_nak_;
  return DropReason::kSilence;
}

// Order within a message, lengths of its packets.
bool RcResponder::shape_fits(const roce::Packet& packet) const {
  const auto& info = packet.info();
  if (!info.send && !info.write) return message_ == Message::kNone;
  if (info.first != (message_ == Message::kNone)) return false;
  if (!info.first && ((message_ == Message::kSend) != info.send || packet.xrc_srq != srq_)) return false;
  return length_fits(packet, config_.mtu);
}

// Anew: even if it is the same queue as before, which may be gone meanwhile.
Verdict RcResponder::aim(uint32_t srq, bool anew) {
  if (config_.service != roce::Service::kXrc || (!anew && aimed_ == srq)) return Verdict::kDone;
  const Verdict verdict = actions_.aim(srq);
  aimed_.reset();
  if (verdict == Verdict::kDone) aimed_ = srq;
  return verdict;
}

Verdict RcResponder::carry_out(const roce::Packet& packet) {
  const auto& info = packet.info();
  if (auto aimed = aim(srq_, info.first); aimed != Verdict::kDone) return aimed;
  if (info.send) return on_send(packet);
  if (info.write) return on_write(packet);
  if (info.atomic_write) return on_atomic_write(packet);
  return info.atomic ? on_atomic(packet) : on_read(packet);
}

Verdict RcResponder::on_send(const roce::Packet& packet) {
  const auto& info = packet.info();
  // What READs before it still have to read mustn't be invalidated under them.
  if (info.ieth && !due_.empty()) return Verdict::kNoRoom;
  Arrival arrival = arrival_of(packet);
  const iovec bytes = bytes_of(packet.payload);
  const std::span<const iovec> from(&bytes, packet.payload.empty() ? 0 : 1);
  if (info.first && info.last) {
    arrival.length = packet.payload.size();
    return actions_.deliver(arrival, from);
  }
  if (info.first) {
    // How long it will be nobody knows yet: place() finds out when it is too long.
    if (auto begun = actions_.begin_receive(arrival); begun != Verdict::kDone) return begun;
    offset_ = 0;
  }
  const auto placed = actions_.place(offset_, from, info.last ? Tail::kLast : Tail::kAnyOrder);
  if (placed != Verdict::kDone) return placed;
  if (info.last) {
    arrival.length = offset_ + packet.payload.size();
    if (auto finished = actions_.finish_receive(arrival); finished != Verdict::kDone) return finished;
  }
  message_ = Message::kSend;
  offset_ += packet.payload.size();
  return Verdict::kDone;
}

Verdict RcResponder::on_write(const roce::Packet& packet) {
  const auto& info = packet.info();
  const uint64_t size = packet.payload.size();
  if (info.first) {
    write_ = {packet.reth.key, packet.reth.address, packet.reth.length};
    offset_ = 0;
    if (write_.length > kLongestMessage) return Verdict::kBadSequence;
    if (auto allowed = actions_.check(write_, RemoteUse::kWrite); allowed != Verdict::kDone) return allowed;
  }
  const uint64_t rest = write_.length - offset_;
  if (info.last ? size != rest : size >= rest) return Verdict::kBadSequence;
  Arrival arrival = arrival_of(packet);
  arrival.kind = Arrival::Kind::kWriteImm;
  arrival.length = write_.length;
  const bool imm = info.imm;
  if (imm)
    if (auto begun = actions_.begin_receive(arrival); begun != Verdict::kDone) return begun;
  const iovec bytes = bytes_of(packet.payload);
  const auto written = actions_.write({write_.key, write_.address + offset_, size}, {&bytes, 1},
                                      info.last ? Tail::kLast : Tail::kAnyOrder);
  if (written != Verdict::kDone) return written;
  if (imm)
    if (auto finished = actions_.finish_receive(arrival); finished != Verdict::kDone) return finished;
  message_ = Message::kWrite;
  offset_ += size;
  return Verdict::kDone;
}

Verdict RcResponder::on_read(const roce::Packet& packet) {
  if (packet.reth.length > kLongestMessage) return Verdict::kBadSequence;
  const RemoteRange range{packet.reth.key, packet.reth.address, packet.reth.length};
  if (auto allowed = actions_.check(range, RemoteUse::kRead); allowed != Verdict::kDone) return allowed;
  const auto packets =
      static_cast<uint32_t>(range.length == 0 ? 1 : (range.length + config_.mtu - 1) / config_.mtu);
  if (goes_on(range, packets)) {
    extend_job(range.length, packets);
    return Verdict::kDone;
  }
  if (!add_job({.first = expected_,
                .packets = packets,
                .each = packets,
                .range = range,
                .msn = (msn_ + 1) & 0xffffff,
                .srq = srq_}))
    return Verdict::kBadSequence;
  expected_ = expected_ + packets;
  return Verdict::kDone;
}

// Whether a READ is the next pair, or the end, of what was asked for last. All of that is one of those which
// are granted.
bool RcResponder::goes_on(const RemoteRange& range, uint32_t packets) const {
  if (jobs_made_ == 0 || packets > roce::kPair || range.length == 0) return false;
  const Job& last = job(jobs_made_ - 1);
  // Should both have come round, so has the number that its answers tell, and they are right.
  const bool nothing_between = last.first + last.packets == expected_ &&
                               ((last.msn + last.packets / roce::kPair - 1) & 0xffffff) == msn_;
  return in_pairs(last) && nothing_between && last.range.length < kLongestEven &&
         last.range.length == uint64_t{last.packets} * config_.mtu && last.packets % roce::kPair == 0 &&
         last.range.key == range.key && last.range.address + last.range.length == range.address;
}

void RcResponder::extend_job(uint64_t bytes, uint32_t packets) {
  Job& last = job(jobs_made_ - 1);
  const auto unsent = std::ranges::find_if(due_, [&](const Due& due) {
    return due.job == jobs_made_ - 1 && due.end == last.packets && !due.again;
  });
  if (unsent != due_.end())
    unsent->end += packets;
  else
    due_.push_back(
        {.job = jobs_made_ - 1, .begin = last.packets, .next = last.packets, .end = last.packets + packets});
  last.range.length += bytes;
  last.packets += packets;
  expected_ = expected_ + packets;
}

Verdict RcResponder::on_atomic(const roce::Packet& packet) {
  const auto& eth = packet.atomic;
  const bool add = packet.bth.operation == Operation::kFetchAdd;
  const AtomicRequest request{.kind = add ? AtomicKind::kFetchAdd : AtomicKind::kCompareSwap,
                              .key = eth.key,
                              .address = eth.address,
                              .first = add ? eth.swap_add : eth.compare,
                              .second = eth.swap_add};
  // Its place among the answers is taken first: it must not run and then have nowhere to be remembered.
  if (!add_job({.first = expected_, .atomic = true, .range = {}, .msn = (msn_ + 1) & 0xffffff, .srq = srq_}))
    return Verdict::kBadSequence;
  uint64_t before = 0;
  if (auto verdict = actions_.atomic(request, before); verdict != Verdict::kDone) {
    due_.pop_back();
    --jobs_made_;
    return verdict;
  }
  job(jobs_made_ - 1).before = before;
  expected_ = expected_ + 1;
  return Verdict::kDone;
}

// Remembered as an empty READ, which is how it is answered, and answered again.
Verdict RcResponder::on_atomic_write(const roce::Packet& packet) {
  AtomicRequest request{.kind = AtomicKind::kWrite, .key = packet.reth.key, .address = packet.reth.address};
  if (packet.reth.length != sizeof request.first || packet.payload.size() != sizeof request.first)
    return Verdict::kBadSequence;
  std::memcpy(&request.first, packet.payload.data(), sizeof request.first);
  if (!add_job({.first = expected_,
                .range = {.key = packet.reth.key, .address = packet.reth.address},
                .msn = (msn_ + 1) & 0xffffff,
                .srq = srq_}))
    return Verdict::kBadSequence;
  uint64_t before = 0;
  if (auto verdict = actions_.atomic(request, before); verdict != Verdict::kDone) {
    due_.pop_back();
    --jobs_made_;
    return verdict;
  }
  expected_ = expected_ + 1;
  return Verdict::kDone;
}

// False: the requester has more of them under way than it was granted (IBA 9.7.7.2.4).
bool RcResponder::add_job(const Job& made) {
  const auto forgotten = [&](const Due& due) { return !remembered(due.job, jobs_made_ + 1); };
  // It was answered, or this request wouldn't be here: who asks for it again is a late copy.
  std::erase_if(due_, [&](const Due& due) { return due.again && forgotten(due); });
  if (std::ranges::any_of(due_, forgotten)) return false;
  job(jobs_made_) = made;
  due_.push_back({.job = jobs_made_, .end = made.packets});
  ++jobs_made_;
  return true;
}

DropReason RcResponder::on_duplicate(const roce::Packet& packet) {
  const auto& info = packet.info();
  if (info.send || info.write) {
    // The acknowledgement was lost: one for all that was carried out.
    ack_due_ = true;
    return DropReason::kDuplicate;
  }
  return replay(packet);
}

DropReason RcResponder::replay(const roce::Packet& packet) {
  const Psn psn = packet.bth.psn;
  const uint64_t kept = std::min<uint64_t>(jobs_made_, jobs_.size());
  for (uint64_t number = jobs_made_ - kept; number != jobs_made_; ++number) {
    const Job& kept_job = job(number);
    const uint32_t index = psn.since(kept_job.first);
    if (index >= kept_job.packets || !remembered(number, jobs_made_) ||
        kept_job.atomic != packet.info().atomic)
      continue;
    uint32_t end = 1;
    if (!kept_job.atomic) {
      const uint64_t offset = uint64_t{index} * config_.mtu;
      const RemoteRange& range = kept_job.range;
      const uint32_t length = packet.info().atomic_write ? 0 : packet.reth.length;
      // A part of what was asked for before, or it is none of ours.
      if (packet.xrc_srq != kept_job.srq || packet.reth.key != range.key ||
          packet.reth.address != range.address + offset || length > range.length - offset)
        return DropReason::kReplayForgotten;
      end = index + std::max<uint32_t>((length + config_.mtu - 1) / config_.mtu, 1);
    }
    // What is still to be sent of it need not be sent twice.
    for (const Due& due : due_)
      if (due.job == number && due.next <= index && end <= due.end) return DropReason::kDuplicate;
    std::erase_if(due_,
                  [&](const Due& due) { return due.job == number && due.next >= index && due.end <= end; });
    if (std::ranges::count_if(due_, &Due::again) >= static_cast<ptrdiff_t>(granted() * kAgainPerFetch))
      return DropReason::kNoRoom;
    // In the order of their numbers: the requester takes answers in no other.
    const auto later =
        std::ranges::find_if(due_, [&](const Due& due) { return psn.before(job(due.job).first + due.next); });
    if (later != due_.begin() && in_pairs(kept_job) && index % roce::kPair == 0)
      if (Due& before = *std::prev(later); before.job == number && before.again && before.end == index) {
        before.end = end;
        return DropReason::kDuplicate;
      }
    due_.insert(later, {.job = number, .begin = index, .next = index, .end = end, .again = true});
    return DropReason::kDuplicate;
  }
  return DropReason::kReplayForgotten;
}

// In each case what follows it isn't told of: it would be sent again at once, and in vain.
DropReason RcResponder::refuse(Verdict verdict, const roce::Packet& packet) {
  switch (verdict) {
    case Verdict::kSilence:
      gap_told_ = true;
      gap_last_ = expected_;
      nak_ = 0;
      ack_due_ = false;
      return DropReason::kSilence;
    case Verdict::kNotReady:
      gap_told_ = true;
      gap_last_ = expected_;
      nak_ = static_cast<uint8_t>(syndrome::kRnr | (config_.rnr_timer & 0x1f));
      nak_psn_ = expected_;
      return DropReason::kNotReady;
    case Verdict::kNoRoom:
    case Verdict::kAsk:
      gap_told_ = true;
      gap_last_ = expected_;
      nak_ = 0;
      return DropReason::kNoRoom;
    default:
      fail(verdict, (packet.info().write && packet.info().imm) || packet.info().ieth, expected_, srq_);
      return DropReason::kNone;
  }
}

void RcResponder::fail(Verdict verdict, bool consumes_receive, Psn psn, uint32_t srq) {
  failed_ = true;
  last_nak_ = nak_ = syndrome_of(verdict);
  nak_psn_ = psn;
  untold_ = verdict;
  untold_consumes_ = consumes_receive;
  untold_srq_ = srq;
  tell_failure();
}

// READs before the one at fault are answered first: a queue pair in ERR reads no memory.
void RcResponder::tell_failure() {
  if (untold_ == Verdict::kDone || !due_.empty()) return;
  const Verdict aimed = aim(untold_srq_, false);
  if (aimed == Verdict::kNoRoom || aimed == Verdict::kAsk) return;
  untold_consumes_ = untold_consumes_ && aimed == Verdict::kDone;
  if (actions_.fail(untold_, untold_consumes_) != Verdict::kNoRoom) untold_ = Verdict::kDone;
}

}  // namespace verbena::engine
