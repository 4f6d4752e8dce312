// What comes back to a requester: acknowledgements, NAKs, answers.
#include <algorithm>

#include "engine/credits.hpp"
#include "engine/rc_requester.hpp"
#include "engine/timers.hpp"

namespace verbena::engine {

using base::Instant;
using base::Psn;
using roce::Operation;
namespace syndrome = roce::syndrome;

namespace {
// Going back on a NAK or an answer that shows a loss, without progress in between. Then it is the timer's
// turn, which is slow: somebody who says NAK for ever mustn't keep us busy.
constexpr unsigned kQuickTries = 8;
constexpr base::Duration kMostRnrWait = base::milliseconds(25);

// IBA table 45: whatever else an acknowledgement may say is reserved.
bool known_syndrome(uint8_t code) {
  const uint8_t kind = code & syndrome::kKindMask;
  return kind == syndrome::kAck || kind == syndrome::kRnr ||
         (kind == syndrome::kSequence && code <= syndrome::kOperational);
}
}  // namespace

DropReason RcRequester::on_packet(Instant now, const roce::Packet& packet) {
  if (packet.bth.service != config_.service) return DropReason::kBadOpcode;
  if (failed_) return DropReason::kStaleAnswer;
  const Psn psn = packet.bth.psn;
  if (psn.before(unacknowledged())) {
    // Of a request that has ended. An acknowledgement may still bring credits.
    if (packet.bth.operation == Operation::kAcknowledge &&
        (packet.aeth.syndrome & syndrome::kKindMask) == syndrome::kAck && psn + 1 == unacknowledged())
      return take_credits(packet.aeth);
    return DropReason::kStaleAnswer;
  }
  if (!psn.before(end_psn_)) return DropReason::kGhostAnswer;
  switch (packet.bth.operation) {
    case Operation::kAcknowledge:
      return on_acknowledge(now, packet);
    case Operation::kAtomicAcknowledge:
      return on_atomic_acknowledge(now, packet);
    case Operation::kReadResponseFirst:
    case Operation::kReadResponseMiddle:
    case Operation::kReadResponseLast:
    case Operation::kReadResponseOnly:
      return on_read_response(now, packet);
    default:
      return DropReason::kBadOpcode;
  }
}

// Ends what was sent before `psn`. False: a READ or atomic before it has had no answer, so that one was lost.
bool RcRequester::acknowledge_before(Instant now, Psn psn) {
  bool moved = false;
  bool complete = true;
  const uint64_t under_way = cost_sent_ - cost_acknowledged();
  while (head_ != tail_ && !failed_) {
    Flight& flight = at(head_);
    const Psn reached = flight.first + flight.done;
    if (!reached.before(psn)) break;
    if (flight.request.fetches()) {
      complete = false;
      break;
    }
    const uint32_t done = std::min(psn.since(flight.first), flight.packets);
    window_.on_progress(cost_until(flight, done) - cost_until(flight, flight.done), under_way);
    flight.done = done;
    moved = true;
    if (done < flight.packets) break;
    end_head(RequestStatus::kSuccess);
  }
  if (moved) progressed(now);
  return complete;
}

void RcRequester::progressed(Instant now) {
  const Psn reached = unacknowledged();
  if (timing_ && timed_.before(reached)) {
    timing_ = false;
    take_sample(now - timed_at_);
  }
  const auto answered = [&](Psn end) { return !reached.before(end); };
  std::erase_if(fetch_ends_, answered);
  std::erase_if(replay_ends_, answered);
  const bool arrived = overtaken_ || cursor_psn().before(reached);  // what we went back to, after all
  if (arrived) {
    overtaken_ = false;
    cursor_packet_ = head_ == tail_ ? 0 : at(head_).done;
    cost_sent_ = cost_acknowledged();
  }
  if (timed_out_) window_.after_timeout(!arrived, shortest_, smoothed_);
  // Not after a timeout, and step by step (Karn): on a path longer than we think every packet would be sent
  // again before its answer comes, and the round trip never learnt.
  if (!timed_out_) backoff_ /= 2;
  rnr_attempts_ = 0;
  rnr_until_ = {};
  recovering_ = false;
  timed_out_ = false;
  quick_tries_ = 0;
  stalled_since_ = now;
  excused_ = false;
  if (reached == end_psn_)
    deadline_ = kNoDeadline;
  else
    arm(now);
  end_unreadable();
}

void RcRequester::take_sample(base::Duration sample) {
  if (smoothed_ == base::Duration{}) {
    smoothed_ = shortest_ = sample;
    variation_ = sample / 2;
  } else {
    const base::Duration error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    variation_ += (error - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
    shortest_ = std::min(shortest_, sample);
  }
  backoff_ = 0;
}

DropReason RcRequester::take_credits(const roce::Aeth& aeth) {
  const uint32_t credits = credits_of(aeth.syndrome);
  credits_known_ = credits != kCreditsUncounted;
  // Our own count of messages is the same as the responder's, but for READs and atomics, which it counts,
  // too. So the limit is taken from what it has acknowledged rather than from its MSN.
  if (credits_known_)
    message_limit_ = (head_ == tail_ ? messages_posted_ : at(head_).messages_before) + credits;
  return DropReason::kNone;
}

DropReason RcRequester::on_acknowledge(Instant now, const roce::Packet& packet) {
  if (!known_syndrome(packet.aeth.syndrome)) return DropReason::kBadAnswer;
  const uint8_t kind = packet.aeth.syndrome & syndrome::kKindMask;
  if (kind != syndrome::kAck) return on_nak(now, packet);
  if (!acknowledge_before(now, packet.bth.psn + 1)) implied_loss(now, packet.bth.psn);
  return take_credits(packet.aeth);
}

// What the NAK asks for is the least (IBA 9.7.5.2.8). Who may try for ever asks the less often the longer it
// has waited: a receiver that doesn't come back costs nobody a processor.
base::Duration RcRequester::rnr_wait(uint8_t syndrome, Instant now) const {
  const base::Duration least = rnr_timer(syndrome);
  if (config_.rnr_retries < kEndlessRnrRetries) return least;
  return std::max(least, std::min((now - rnr_since_) / 8, kMostRnrWait));
}

DropReason RcRequester::on_nak(Instant now, const roce::Packet& packet) {
  const uint8_t code = packet.aeth.syndrome;
  const Psn psn = packet.bth.psn;
  // A NAK acknowledges what was before it; a fetch among that whose answer is missing comes first.
  if (!acknowledge_before(now, psn)) {
    implied_loss(now, psn);
    return DropReason::kNone;
  }
  if (failed_ || head_ == tail_) return DropReason::kStaleAnswer;
  if ((code & syndrome::kKindMask) == syndrome::kRnr) {
    if (rnr_until_ != Instant{} || (rnr_attempts_ > 0 && !resent_)) return DropReason::kStaleAnswer;
    ++counters_.rnr_naks;
    if (rnr_attempts_++ == 0) rnr_since_ = now;
    if (config_.rnr_retries < kEndlessRnrRetries && rnr_attempts_ > config_.rnr_retries) {
      fail_head(RequestStatus::kRnrRetryExceeded);
      return DropReason::kNone;
    }
    rewind();
    stalled_since_ = now;  // it lives, it only isn't ready
    rnr_until_ = now + rnr_wait(code, now);
    return DropReason::kNone;
  }
  switch (code) {
    case syndrome::kSequence:
      ++counters_.sequence_naks;
      // A copy, or one of the same gap that was under way already when we went back.
      if (rnr_until_ != Instant{} || (recovering_ && !second_try_answered(now)))
        return DropReason::kStaleAnswer;
      lost(now);
      return DropReason::kNone;
    case syndrome::kInvalidRequest:
      fail_head(RequestStatus::kRemoteInvalid);
      return DropReason::kNone;
    case syndrome::kRemoteAccess:
      fail_head(RequestStatus::kRemoteAccess);
      return DropReason::kNone;
    case syndrome::kOperational:
      fail_head(RequestStatus::kRemoteOperational);
      return DropReason::kNone;
    default:
      return DropReason::kBadAnswer;
  }
}

// Which request an answer with this number is for: the one it lies in, or a fetch before that whose answer is
// missing. None of those before it needs an answer of its own, so they end when this one is taken.
const RcRequester::Flight& RcRequester::answered_by(Psn psn) const {
  uint32_t number = head_;
  while (!at(number).request.fetches() && !psn.before(at(number).first + at(number).packets)) ++number;
  return at(number);
}

// IBA 9.9.2: an answer that isn't what was asked for ends the request. The first packet of a READ is a first
// one, the last a last one; between them parts end where one was asked for. Pairs begin and end each for
// itself.
bool RcRequester::fits_read(const Flight& flight, const roce::Packet& packet) const {
  const auto& info = packet.info();
  const uint32_t index = flight.done;
  const uint64_t offset = uint64_t{index} * config_.mtu;
  if (packet.payload.size() != std::min<uint64_t>(flight.request.answer_bytes() - offset, config_.mtu))
    return false;
  if (info.aeth && (packet.aeth.syndrome & syndrome::kKindMask) != syndrome::kAck) return false;
  const uint32_t each = flight.even ? roce::kPair : flight.packets;
  if (index % each == 0 && !info.first) return false;
  if (index + 1 == flight.packets) return info.last;
  if (flight.even) return info.last == ((index + 1) % each == 0);
  const Psn end = packet.bth.psn + 1;
  const auto asked = [end](const auto& ends) { return std::ranges::find(ends, end) != ends.end(); };
  return !info.last || asked(fetch_ends_) || asked(replay_ends_);
}

DropReason RcRequester::on_read_response(Instant now, const roce::Packet& packet) {
  const Psn psn = packet.bth.psn;
  const Flight& wanted = answered_by(psn);
  const bool expected = wanted.request.fetches() && !wanted.request.returns_word();
  if (!expected && psn.since(wanted.first) < wanted.packets) return DropReason::kBadAnswer;
  if (!acknowledge_before(now, psn)) {
    implied_loss(now, psn);
    return DropReason::kOutOfOrder;
  }
  if (failed_ || head_ == tail_) return DropReason::kStaleAnswer;
  Flight& flight = at(head_);
  const uint32_t index = flight.done;  // acknowledge_before: psn is first + done
  const uint64_t offset = uint64_t{index} * config_.mtu;
  const bool last = index + 1 == flight.packets;
  if (!fits_read(flight, packet)) {
    fail_head(RequestStatus::kBadResponse);
    return DropReason::kBadAnswer;
  }
  if (!packet.payload.empty() &&
      !host_.scatter(head_, offset, packet.payload, last ? Tail::kLast : Tail::kAnyOrder)) {
    fail_head(RequestStatus::kLocalProtection);
    return DropReason::kNone;
  }
  window_.on_progress(cost_until(flight, index + 1) - cost_until(flight, index),
                      cost_sent_ - cost_acknowledged());
  ++flight.done;
  if (last) end_head(RequestStatus::kSuccess);
  progressed(now);
  return DropReason::kNone;
}

size_t RcRequester::on_more(Instant now, const roce::Packet& before, MorePayloads& payloads) {
  // They are as long as the one before, which may be the short end of the READ before theirs.
  if (failed_ || head_ == tail_ || before.payload.size() != config_.mtu) return 0;
  Flight& flight = at(head_);
  if (flight.request.kind != Request::Kind::kRead || before.bth.psn + 1 != flight.first + flight.done ||
      (before.bth.operation != Operation::kReadResponseMiddle && !flight.even))
    return 0;
  // Of what was asked for and not gone back on; the last is another.
  const uint32_t sent = std::min(cursor_psn().since(flight.first), flight.packets);
  if (flight.done + 1 >= sent) return 0;
  const uint32_t done = flight.done;
  const size_t taken =
      host_.scatter_more(head_, uint64_t{done} * config_.mtu, config_.mtu, sent - 1 - done, payloads);
  if (taken == 0) return 0;
  for (size_t i = 0; i < taken; ++i) {
    window_.on_progress(cost_until(flight, flight.done + 1) - cost_until(flight, flight.done),
                        cost_sent_ - cost_acknowledged());
    ++flight.done;
  }
  progressed(now);
  return taken;
}

DropReason RcRequester::on_atomic_acknowledge(Instant now, const roce::Packet& packet) {
  const Flight& wanted = answered_by(packet.bth.psn);
  if (!wanted.request.returns_word() && packet.bth.psn.since(wanted.first) < wanted.packets)
    return DropReason::kBadAnswer;
  if (!acknowledge_before(now, packet.bth.psn)) {
    implied_loss(now, packet.bth.psn);
    return DropReason::kOutOfOrder;
  }
  if (failed_ || head_ == tail_) return DropReason::kStaleAnswer;
  Flight& flight = at(head_);
  if ((packet.aeth.syndrome & syndrome::kKindMask) != syndrome::kAck) {
    fail_head(RequestStatus::kBadResponse);
    return DropReason::kBadAnswer;
  }
  const uint64_t before = packet.atomic_before;
  if (!host_.scatter(head_, 0, std::as_bytes(std::span(&before, 1)), Tail::kLast)) {
    fail_head(RequestStatus::kLocalProtection);
    return DropReason::kNone;
  }
  window_.on_progress(cost_until(flight, 1), cost_sent_ - cost_acknowledged());
  flight.done = 1;
  end_head(RequestStatus::kSuccess);
  progressed(now);
  return DropReason::kNone;
}

// Something later was answered: what is at the head was lost on its way here. Further answers of the same
// flight say the same again; numbers that run backwards belong to the second try, so that is lost, too.
void RcRequester::implied_loss(Instant now, Psn psn) {
  const bool backwards = !last_answer_.before(psn);
  last_answer_ = psn;
  if (failed_ || (recovering_ && !(backwards && second_try_answered(now)))) return;
  ++counters_.implied_losses;
  lost(now);
}

void RcRequester::lost(Instant now) {
  ++quick_tries_;
  window_.on_loss(shortest_, smoothed_);
  rewind();
  arm(now);
}

// Can what comes now be an answer to what was sent after going back? Small packets are faster than those that
// were timed, so half a round trip will do.
bool RcRequester::second_try_answered(Instant now) const {
  return resent_ && quick_tries_ < kQuickTries && now - resent_at_ >= shortest_ / 2;
}

void RcRequester::end_head(RequestStatus status) {
  // The host may post from within: nothing of what ends is looked at afterwards.
  const uint32_t number = head_++;
  if (const Request& request = at(number).request; even_ && status == RequestStatus::kSuccess) {
    if (request.kind == Request::Kind::kWrite)
      writable_.add(request.key, request.address, request.length);
    else if (request.kind == Request::Kind::kRead)
      readable_.add(request.key, request.address, request.length);
  }
  if (cursor_ == number) {
    cursor_ = head_;
    cursor_packet_ = 0;
    overtaken_ = true;
  }
  host_.ended(number, status);
}

// A request whose memory can't be read ends when all before it have.
void RcRequester::end_unreadable() {
  if (!failed_ && head_ != tail_ && at(head_).unreadable && head_ == cursor_)
    fail_head(RequestStatus::kLocalProtection);
}

void RcRequester::fail_head(RequestStatus status) {
  failed_ = true;
  deadline_ = kNoDeadline;
  rnr_until_ = {};
  end_head(status);
}

}  // namespace verbena::engine
