#include "engine/rc_requester.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "engine/message.hpp"
#include "engine/timers.hpp"

namespace verbena::engine {

using base::Instant;
using base::Psn;
using roce::Operation;

namespace {

// An acknowledgement is asked for after such a part of the window, so that it moves on, but not before so
// many packets; and after such a part of the queue, so that the program can post on.
constexpr uint32_t kAsksPerWindow = 4;
constexpr uint32_t kAskedAtOnce = 16;
constexpr uint32_t kAsksPerQueue = 4;
// A long READ is asked for in parts: its answers must fit the window, since nobody else holds them back.
constexpr uint32_t kLongestFetch = 256 * 1024;
constexpr base::Duration kFirstPatience = base::milliseconds(2);
constexpr base::Duration kLeastPatience = std::chrono::microseconds(400);
constexpr base::Duration kMostPatience = base::seconds(2);
constexpr base::Duration kAway =
    base::milliseconds(10);  // a timer looked at this late: the process didn't run

}  // namespace

RcRequester::RcRequester(const RcRequesterConfig& config, RequesterHost& host)
    : config_(config),
      host_(host),
      requests_(std::bit_ceil(std::max(config.capacity, 1u))),
      mask_(static_cast<uint32_t>(requests_.size() - 1)),
      next_psn_(config.first_psn),
      end_psn_(config.first_psn),
      window_(config.mtu + Window::kPacketOverhead, config.window_bytes) {
  config_.capacity = std::max(config.capacity, 1u);
  fetch_ends_.reserve(config.fetches);
}

void RcRequester::post(const Request& request) {
  CHECK(!full());
  // Field by field: what is put together elsewhere, and copied at once, waits for its own stores.
  Flight& flight = at(tail_);
  flight.request = request;
  flight.first = next_psn_;
  flight.packets = packets_for(request.fetches() && request.kind != Request::Kind::kRead ? 1 : request.length,
                               config_.mtu);
  flight.done = 0;
  flight.cost_before = cost_posted_;
  flight.messages_before = messages_posted_;
  flight.unreadable = false;
  flight.even = goes_even(request);
  next_psn_ = next_psn_ + flight.packets;
  cost_posted_ += cost_until(flight, flight.packets);
  messages_posted_ += request.consumes_receive() ? 1 : 0;
  ++tail_;
}

bool RcRequester::goes_even(const Request& request) const {
  if (!even_ || config_.service != roce::Service::kRc) return false;
  if (request.kind == Request::Kind::kRead)
    return request.length >= uint64_t{kWorthARun} * config_.mtu &&
           readable_.cover(request.key, request.address, request.length);
  return request.kind == Request::Kind::kWrite && !request.has_imm && request.length <= kLongestEven &&
         writable_.cover(request.key, request.address, request.length);
}

uint64_t RcRequester::cost_until(const Flight& flight, uint32_t packets) const {
  return uint64_t{packets} * Window::kPacketOverhead +
         std::min<uint64_t>(uint64_t{packets} * config_.mtu, flight.request.length);
}

uint64_t RcRequester::cost_acknowledged() const {
  return head_ == tail_ ? cost_posted_ : at(head_).cost_before + cost_until(at(head_), at(head_).done);
}

Psn RcRequester::unacknowledged() const {
  return head_ == tail_ ? next_psn_ : at(head_).first + at(head_).done;
}

Psn RcRequester::cursor_psn() const {
  return cursor_ == tail_ ? next_psn_ : at(cursor_).first + cursor_packet_;
}

bool RcRequester::may_start(const Flight& flight) const {
  // What is still being read mustn't be invalidated under the READ.
  if ((flight.request.fenced || flight.request.invalidates) && !fetch_ends_.empty()) return false;
  // Without credit the first packet goes all the same, alone: its answer brings the next (IBA 9.7.7.2.5).
  return !flight.request.consumes_receive() || cost_sent_ == cost_acknowledged() ||
         !has_no_credit_for(flight);
}

bool RcRequester::has_no_credit_for(const Flight& flight) const {
  return credits_known_ && static_cast<int32_t>(flight.messages_before - message_limit_) >= 0;
}

bool RcRequester::poll_transmit(Instant now, PacketSink& sink) {
  if (failed_ || cursor_ == tail_ || now < rnr_until_) return false;
  if (rnr_until_ != Instant{}) {
    rnr_until_ = {};
    deadline_ = kNoDeadline;  // the timer starts with what is sent next
  }
  Flight& flight = at(cursor_);
  if (flight.unreadable) return false;
  if (cursor_packet_ == 0 && !may_start(flight)) return false;
  const uint64_t under_way = cost_sent_ - cost_acknowledged();
  if (under_way > 0 && under_way >= window_.size()) return false;
  // After an RNR NAK or a timeout one packet finds out whether the responder is ready, or there.
  if (under_way > 0 && (rnr_attempts_ > 0 || timed_out_)) return false;
  if (!sink.ready()) return false;
  if (flight.request.fetches()) return send_fetch(now, flight, sink);
  return send_middles(now, flight, sink) || send_piece(now, flight, sink);
}

roce::Packet RcRequester::packet_for(const Request& request) const {
  roce::Packet packet;
  packet.bth.service = config_.service;
  packet.bth.pkey = config_.pkey;
  packet.bth.destination = config_.target;
  packet.xrc_srq = request.srq;
  return packet;
}

// A packet of a SEND or WRITE, but for its payload.
roce::Packet RcRequester::piece_of(const Flight& flight, uint32_t index, uint32_t length) const {
  const Request& request = flight.request;
  const bool first = flight.even || index == 0;
  const bool last = flight.even || index + 1 == flight.packets;
  roce::Packet packet = packet_for(request);
  packet.bth.operation = operation_for(request, first, last);
  packet.bth.psn = flight.first + index;
  packet.bth.solicited = last && request.solicited;
  packet.reth = {.address = request.address + (flight.even ? uint64_t{index} * config_.mtu : 0),
                 .key = request.key,
                 .length = flight.even ? length : static_cast<uint32_t>(request.length)};
  packet.imm = request.imm;
  packet.invalidate_key = request.imm;
  return packet;
}

// Before the last packet of a message, and behind its first if that is another, all are alike; those that are
// new and needn't ask for an acknowledgement go together.
bool RcRequester::send_middles(Instant now, const Flight& flight, PacketSink& sink) {
  const Psn psn = cursor_psn();
  if ((cursor_packet_ == 0 && !flight.even) || recovering_ || psn != end_psn_) return false;
  const uint32_t cost = config_.mtu + Window::kPacketOverhead;
  // As many as stay below, each for itself, where the next one must ask.
  const auto below = [cost](uint64_t used, uint64_t limit) {
    return used < limit ? (limit - used - 1) / cost : 0;
  };
  const uint64_t wanted = std::min({uint64_t{flight.packets - 1 - cursor_packet_},
                                    below(cost_sent_ - cost_acknowledged(), window_.size()),
                                    below(cost_sent_ - cost_asked_, unasked_limit())});
  if (wanted < kWorthARun) return false;
  const roce::Packet packet = piece_of(flight, cursor_packet_, config_.mtu);
  const auto count =
      static_cast<uint32_t>(std::min<uint64_t>(wanted, sink.run_room(packet.bth.opcode(), config_.mtu)));
  if (count < kWorthARun) return false;
  const size_t bytes = size_t{count} * config_.mtu;
  const std::byte* memory = host_.in_place(cursor_, uint64_t{cursor_packet_} * config_.mtu, bytes);
  if (memory == nullptr) return false;
  sink.commit_run(packet, {memory, bytes}, config_.mtu);
  counters_.packets += count - 1;
  sent(now, psn, count, false);
  return true;
}

bool RcRequester::send_piece(Instant now, Flight& flight, PacketSink& sink) {
  const Request& request = flight.request;
  const uint64_t offset = uint64_t{cursor_packet_} * config_.mtu;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(request.length - offset, config_.mtu));
  roce::Packet packet = piece_of(flight, cursor_packet_, length);
  const auto room = sink.room(packet.bth.opcode(), length);
  if (length > 0 && !host_.gather(cursor_, offset, room)) {
    // What was posted before it still ends as it should.
    flight.unreadable = true;
    end_unreadable();
    return !failed_ && ask_again(now, flight, sink);
  }
  packet.bth.ack_request = worth_asking(cursor_packet_ + 1 == flight.packets);
  packet.payload = room;
  sink.commit(packet);
  sent(now, packet.bth.psn, 1, packet.bth.ack_request);
  return true;
}

// What was sent before a request that can't be read has left the asking to it: so the last packet goes once
// more, and asks. To the responder it is a duplicate, which it acknowledges at once.
bool RcRequester::ask_again(Instant now, const Flight& unreadable, PacketSink& sink) {
  if (cost_asked_ >= unreadable.cost_before) return false;
  --cursor_;
  cursor_packet_ = at(cursor_).packets - 1;
  cost_sent_ = at(cursor_).cost_before + cost_until(at(cursor_), cursor_packet_);
  return poll_transmit(now, sink);
}

// After the packet that goes now. Whoever answers has as much work with it as we have with the answer.
bool RcRequester::worth_asking(bool last) const {
  if (recovering_ || (last && !followed_at_once())) return true;
  const uint32_t packet = config_.mtu + Window::kPacketOverhead;
  const uint64_t after = cost_sent_ + packet;
  return after - cost_acknowledged() >= window_.size() || after - cost_asked_ >= unasked_limit() ||
         (last && (cursor_ + 1 - number_asked_) * kAsksPerQueue >= config_.capacity);
}

uint64_t RcRequester::unasked_limit() const {
  return std::max(window_.size() / kAsksPerWindow, (config_.mtu + Window::kPacketOverhead) * kAskedAtOnce);
}

// Whether the request behind the cursor's goes at once, and asks in its stead.
bool RcRequester::followed_at_once() const {
  if (cursor_ + 1 == tail_) return false;
  const Flight& next = at(cursor_ + 1);
  if (next.unreadable || next.request.fetches() || next.request.fenced || next.request.invalidates)
    return false;
  return !next.request.consumes_receive() || !has_no_credit_for(next);
}

bool RcRequester::send_fetch(Instant now, Flight& flight, PacketSink& sink) {
  const Request& request = flight.request;
  if (request.kind == Request::Kind::kRead) return send_read(now, flight, sink);
  if (fetch_ends_.size() >= config_.fetches) return false;
  roce::Packet packet = packet_for(request);
  const bool carries = request.kind == Request::Kind::kAtomicWrite;
  if (carries) {
    packet.bth.operation = Operation::kAtomicWrite;
    packet.reth = {request.address, request.key, static_cast<uint32_t>(request.length)};
  } else {
    const bool add = request.kind == Request::Kind::kFetchAdd;
    packet.bth.operation = add ? Operation::kFetchAdd : Operation::kCompareSwap;
    packet.atomic = {request.address, request.key, add ? request.compare_add : request.swap,
                     add ? 0 : request.compare_add};
  }
  const auto room = sink.room(packet.bth.opcode(), carries ? static_cast<uint32_t>(request.length) : 0);
  if (carries && !host_.gather(cursor_, 0, room)) {
    flight.unreadable = true;
    end_unreadable();
    return false;
  }
  if (carries) packet.payload = room;
  packet.bth.psn = flight.first;
  packet.bth.ack_request = true;
  sink.commit(packet);
  fetch_ends_.push_back(packet.bth.psn + 1);
  sent(now, packet.bth.psn, 1, true);
  return true;
}

bool RcRequester::send_read(Instant now, const Flight& flight, PacketSink& sink) {
  const Psn psn = cursor_psn();
  // To the responder all pairs that follow each other are one.
  const bool goes_on = flight.even && cursor_packet_ % (kLongestEven / config_.mtu) != 0 &&
                       !fetch_ends_.empty() && fetch_ends_.back() == psn;
  if (!goes_on && fetch_ends_.size() >= config_.fetches) return false;
  uint32_t packets = worth_reading(flight);
  if (packets == 0) return false;
  if (flight.even) {
    packets = ask_in_pairs(flight, packets, sink);
  } else {
    const roce::Packet packet = read_request(flight, cursor_packet_, packets);
    (void)sink.room(packet.bth.opcode(), 0);
    sink.commit(packet);
  }
  if (goes_on) fetch_ends_.pop_back();
  fetch_ends_.push_back(psn + packets);
  sent(now, psn, packets, true);
  return true;
}

// How many packets of it had better be asked for now.
uint32_t RcRequester::worth_reading(const Flight& flight) const {
  const uint32_t cost = config_.mtu + Window::kPacketOverhead;
  const uint64_t under_way = cost_sent_ - cost_acknowledged();
  const uint64_t room = window_.size() - std::min<uint64_t>(under_way, window_.size());
  const uint64_t fits = std::min<uint64_t>(room, kLongestFetch) / cost;
  uint32_t wanted = flight.packets - cursor_packet_;
  if (flight.even)
    wanted = std::min(wanted, kLongestEven / config_.mtu - cursor_packet_ % (kLongestEven / config_.mtu));
  const Psn psn = cursor_psn();
  for (const Psn end : replay_ends_)
    if (psn.before(end)) wanted = std::min(wanted, end.since(psn));
  if (whole_replays_ && psn.before(end_psn_)) return wanted;
  const uint32_t before = flight.even ? cursor_packet_ % roce::kPair : 0;  // of a pair
  const uint32_t least = flight.even ? std::min(roce::kPair - before, wanted) : 1;
  auto packets = static_cast<uint32_t>(std::clamp<uint64_t>(fits, least, wanted));
  if (flight.even && packets < wanted) packets -= (before + packets) % roce::kPair;
  // Not a packet at a time, as room comes: so many small ones would use up the fetches.
  const bool little = fits < least || (packets < wanted && packets < window_.size() / 4 / cost);
  return little && under_way > 0 ? 0 : packets;
}

roce::Packet RcRequester::read_request(const Flight& flight, uint32_t index, uint32_t packets) const {
  const Request& request = flight.request;
  const uint64_t offset = uint64_t{index} * config_.mtu;
  roce::Packet packet = packet_for(request);
  packet.bth.operation = Operation::kReadRequest;
  packet.bth.psn = flight.first + index;
  packet.bth.ack_request = true;
  packet.reth = {
      request.address + offset, request.key,
      static_cast<uint32_t>(std::min<uint64_t>(request.length - offset, uint64_t{packets} * config_.mtu))};
  return packet;
}

// How many packets were asked for. What is asked for again has the same borders, or begins within a pair.
uint32_t RcRequester::ask_in_pairs(const Flight& flight, uint32_t packets, PacketSink& sink) {
  uint32_t asked = 0;
  while (asked < packets && (asked == 0 || sink.ready())) {
    const uint32_t index = cursor_packet_ + asked;
    const uint32_t count = std::min(roce::kPair - index % roce::kPair, packets - asked);
    const roce::Packet packet = read_request(flight, index, count);
    (void)sink.room(packet.bth.opcode(), 0);
    sink.commit(packet);
    if (asked > 0) {  // sent() counts the first
      ++counters_.packets;
      if (packet.bth.psn.before(end_psn_)) ++counters_.retransmitted;
    }
    asked += count;
  }
  return asked;
}

void RcRequester::sent(Instant now, Psn psn, uint32_t packets, bool asks) {
  const Flight& flight = at(cursor_);
  ++counters_.packets;
  const Psn after = psn + packets;
  if (psn.before(end_psn_)) {
    ++counters_.retransmitted;
    if (!timed_.before(psn)) timing_ = timing_ && !timed_.before(after);
  } else if (!timing_ && asks) {
    timing_ = true;  // Karn: only what was sent once tells the round trip
    timed_ = psn;
    timed_at_ = now;
  }
  if (recovering_ && !resent_) {
    resent_ = true;
    resent_at_ = now;
  }
  if (end_psn_.before(after)) end_psn_ = after;
  cursor_packet_ += packets;
  cost_sent_ = flight.cost_before + cost_until(flight, cursor_packet_);
  // The peer owes an answer from when it is asked; the time before is the sender's own.
  const bool first_asked = asks && cost_asked_ <= cost_acknowledged();
  if (asks) {
    cost_asked_ = cost_sent_;
    number_asked_ = cursor_ + 1;
  }
  if (cursor_packet_ == flight.packets) {
    ++cursor_;
    cursor_packet_ = 0;
  }
  if (deadline_ == kNoDeadline) stalled_since_ = now;
  if (deadline_ == kNoDeadline || first_asked) arm(now);
}

Instant RcRequester::next_deadline() const {
  if (failed_ || head_ == tail_) return kNoDeadline;
  if (rnr_until_ != Instant{}) return rnr_until_;
  return deadline_;
}

// How long to wait before going back: the round trip as measured, doubled with each try in vain. The queue
// pair's own timeout says when to give up, not when to try again: it is long, and a lost last packet is
// common.
base::Duration RcRequester::patience() const {
  base::Duration wait = smoothed_ == base::Duration{} ? kFirstPatience : smoothed_ + 4 * variation_;
  const unsigned step = std::min(backoff_, 20u);
  wait = std::max(wait, kLeastPatience) * ((2 + step % 2) << step / 2) / 2;
  const auto spread = base::Duration(wait.count() / 2 * (config_.chance >> 24) / 256);
  wait = std::min(wait + spread, kMostPatience);
  return config_.timeout == base::Duration{} ? wait : std::min(wait, config_.timeout);
}

void RcRequester::on_timer(Instant now) {
  if (failed_ || head_ == tail_) return;
  if (rnr_until_ != Instant{}) {
    if (now >= rnr_until_) {
      rnr_until_ = {};
      deadline_ = kNoDeadline;  // the timer starts with what is sent next
    }
    return;
  }
  if (now < deadline_) return;
  excuse(now - deadline_, now);
  ++counters_.timeouts;
  ++backoff_;
  if (now >= gives_up_at()) {
    if (!host_.other_path()) return fail_head(RequestStatus::kRetryExceeded);
    stalled_since_ = now;
    backoff_ = 0;
  }
  config_.chance = config_.chance * 1664525 + 1013904223;
  window_.on_timeout();
  timed_out_ = true;
  rewind();
  arm(now);
}

// Time in which nobody looked, as the process was stopped or got no processor, isn't the peer's silence: what
// it said meanwhile may not have been read yet, and an adapter would have tried again. So it doesn't count,
// and who comes back to find that all is over tries once more.
void RcRequester::excuse(base::Duration late, Instant now) {
  stalled_since_ = stalled_since_ + late;
  if (late <= kAway || excused_ || now < gives_up_at()) return;
  excused_ = true;
  stalled_since_ = stalled_since_ + config_.timeout;
}

Instant RcRequester::gives_up_at() const {
  if (config_.timeout == base::Duration{}) return kNoDeadline;
  return stalled_since_ + config_.timeout * (config_.retries + 1);
}

void RcRequester::arm(Instant now) { deadline_ = std::min(now + patience(), gives_up_at()); }

void RcRequester::set_retry_rules(base::Duration timeout, unsigned retries, unsigned rnr_retries) {
  config_.timeout = timeout;
  config_.retries = retries;
  config_.rnr_retries = rnr_retries;
}

// Everything that isn't acknowledged is sent again, in order (go-back-N, IBA 9.7.5.1.1).
void RcRequester::rewind() {
  cursor_ = head_;
  cursor_packet_ = head_ == tail_ ? 0 : at(head_).done;
  cost_sent_ = cost_asked_ = cost_acknowledged();
  number_asked_ = cursor_;
  for (const Psn end : fetch_ends_)
    if (std::ranges::find(replay_ends_, end) == replay_ends_.end()) replay_ends_.push_back(end);
  fetch_ends_.clear();
  recovering_ = true;
  resent_ = false;
}

}  // namespace verbena::engine
