#include "sim/unreliable_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim/pattern.hpp"

namespace verbena::sim {

using base::Duration;
using base::Instant;
using engine::Arrival;
using engine::RequestStatus;
using engine::Verdict;

namespace {
constexpr uint32_t kCapacity = 16;
constexpr std::byte kUntouched{0xee};

Duration some(Random& random, Duration most) {
  return Duration(static_cast<int64_t>(random.between(1, static_cast<uint64_t>(most.count()))));
}
}  // namespace

std::string UnreliableEnd::name() const { return fmt::format("qp {:#x}", config_.qpn.value); }

void UnreliableEnd::run_program() {
  const Instant now = stage_.events.now();
  if (config_.receive_lag.count() == 0) {
    receives_ = std::max(receives_, config_.receives_at_once);
  } else if (now >= next_receives_) {
    receives_ = std::max(receives_, config_.receives_at_once);
    next_receives_ = now + some(random_, config_.receive_lag);
  }
  while (posted_ < letters_.size() && !full() && !failed_ && now >= next_post_) {
    post(letters_[posted_++]);
    if (config_.pause.count() > 0 && random_.percent(30)) next_post_ = now + some(random_, config_.pause);
  }
}

// Receives that are lacking are nobody's alarm: whoever comes meanwhile is lost.
Instant UnreliableEnd::next_deadline() const {
  const bool more = posted_ < letters_.size() && !full() && !failed_;
  return more && stage_.events.now() < next_post_ ? next_post_ : engine::kNoDeadline;
}

bool UnreliableEnd::gather(uint32_t number, uint64_t offset, std::span<std::byte> into) {
  const Letter& letter = letters_.at(number);
  const uint64_t length = letter.datagram.request.length;
  if (number != ended_ || offset + into.size() > length)
    stage_.oracle.wrong(
        fmt::format("{}: bytes {}+{} of {} were wanted", name(), offset, into.size(), number));
  if (letter.ends == RequestStatus::kLocalProtection && offset + into.size() > length / 2) return false;
  fill_pattern(letter.pattern, offset, into);
  return true;
}

bool UnreliableEnd::scatter(uint32_t, uint64_t, std::span<const std::byte>, engine::Tail) {
  stage_.oracle.wrong(fmt::format("{}: an answer, though nothing was asked", name()));
  return false;
}

void UnreliableEnd::ended(uint32_t number, RequestStatus status) {
  stage_.journal.add(uint64_t{number} << 8 | static_cast<uint64_t>(status));
  if (number != ended_ || number >= posted_ || failed_ || status != letters_[number].ends)
    stage_.oracle.wrong(fmt::format("{}: {} ended with status {}, {} was next", name(), number,
                                    static_cast<int>(status), ended_));
  ++ended_;
  failed_ = status != RequestStatus::kSuccess;
}

void UnreliableEnd::judge() {
  if (!failed_ && ended_ != letters_.size())
    stage_.oracle.wrong(fmt::format("{}: stalled, {} of {} ended", name(), ended_, letters_.size()));
}

bool UnreliableEnd::matches(const Letter& letter, const Arrival& arrival, std::span<const std::byte> bytes) {
  const auto& request = letter.datagram.request;
  const bool send = request.kind == engine::Request::Kind::kSend;
  return request.consumes_receive() && (arrival.kind == Arrival::Kind::kSend) == send &&
         arrival.length == request.length && arrival.solicited == request.solicited &&
         arrival.has_imm == request.has_imm &&
         (!arrival.has_imm || arrival.imm == __builtin_bswap32(request.imm)) &&
         (!send || (bytes.size() == request.length && is_pattern(letter.pattern, 0, bytes)));
}

UcEnd::UcEnd(const UnreliableConfig& config, const Stage& stage, Random random, base::Psn sends,
             base::Psn expects, base::Qpn peer_qpn, HostId peer_host)
    : UnreliableEnd(config, stage, random),
      peer_host_(peer_host),
      requester_({.target = peer_qpn, .first_psn = sends, .mtu = config.mtu, .capacity = kCapacity}, *this),
      responder_({.first_psn = expects, .mtu = config.mtu}, *this) {}

void UcEnd::begin(UcEnd& peer) {
  peer_ = &peer;
  uint64_t bytes = 0;
  for (auto& letter : peer.letters()) {
    auto& request = letter.datagram.request;
    if (request.kind != engine::Request::Kind::kWrite) continue;
    letter.place = bytes;
    request.address = kAddress + bytes;
    request.key = key();
    bytes += request.length;
  }
  memory_.assign(bytes, kUntouched);
}

void UcEnd::take(Instant now, const roce::Packet& packet) {
  causes_.count(responder_.on_packet(now, packet));
}

bool UcEnd::transmit(Instant now, Network& network) {
  DatagramSink sink(network, config_.host, peer_host_);
  return requester_.poll_transmit(now, sink);
}

Verdict UcEnd::check(const engine::RemoteRange& range, engine::RemoteUse) {
  if (busy()) return Verdict::kNoRoom;
  if (range.length == 0) return Verdict::kDone;
  const uint64_t offset = range.address - kAddress;
  const bool fits = range.key == key() && offset <= memory_.size() && range.length <= memory_.size() - offset;
  if (!fits) stage_.oracle.wrong(fmt::format("{}: a WRITE to {:#x} that nobody made", name(), range.address));
  return fits ? Verdict::kDone : Verdict::kBadBounds;
}

Verdict UcEnd::write(const engine::RemoteRange& range, std::span<const iovec> from, engine::Tail) {
  if (auto verdict = check(range, engine::RemoteUse::kWrite); verdict != Verdict::kDone) return verdict;
  uint64_t offset = range.address - kAddress;
  for (const iovec& piece : from) {
    if (piece.iov_len > 0) std::memcpy(memory_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

Verdict UcEnd::read(const engine::RemoteRange&, std::span<const iovec>, engine::Tail) {
  stage_.oracle.wrong(fmt::format("{}: UC has no READ", name()));
  return Verdict::kNotEnabled;
}

Verdict UcEnd::atomic(const engine::AtomicRequest&, uint64_t&) {
  stage_.oracle.wrong(fmt::format("{}: UC has no atomics", name()));
  return Verdict::kNotEnabled;
}

Verdict UcEnd::begin_receive(const Arrival& arrival) {
  if (busy()) return Verdict::kNoRoom;
  if (receives_ == 0) return Verdict::kNotReady;
  if (arrival.kind == Arrival::Kind::kSend && arrival.length > config_.receive_bytes)
    return Verdict::kTooLong;
  receiving_.clear();
  return Verdict::kDone;
}

Verdict UcEnd::place(uint64_t offset, std::span<const iovec> from, engine::Tail) {
  for (const iovec& piece : from) {
    if (offset + piece.iov_len > config_.receive_bytes) return Verdict::kTooLong;
    receiving_.resize(std::max<size_t>(receiving_.size(), offset + piece.iov_len));
    if (piece.iov_len > 0) std::memcpy(receiving_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

// The next of the peer's letters that it can be: what was before that one was lost, and mustn't come any
// more.
Verdict UcEnd::finish_receive(const Arrival& arrival) {
  stage_.journal.add(0x2000000 + arrival.length);
  auto& letters = peer_->letters();
  const size_t end = peer_->posted();
  while (next_letter_ < end && !matches(letters[next_letter_], arrival, receiving_)) ++next_letter_;
  if (next_letter_ == end) {
    stage_.oracle.wrong(
        fmt::format("{}: {} B arrived that aren't whole, or not in order", name(), arrival.length));
    return Verdict::kDone;
  }
  Letter& letter = letters[next_letter_++];
  ++letter.arrived;
  if (letter.unwanted)
    stage_.oracle.wrong(fmt::format("{}: a message that was never sent as a whole", name()));
  if (arrival.kind == Arrival::Kind::kWriteImm && !whole(letter))
    stage_.oracle.wrong(fmt::format("{}: an immediate before all bytes of its WRITE", name()));
  --receives_;
  return Verdict::kDone;
}

Verdict UcEnd::deliver(const Arrival& arrival, std::span<const iovec> from) {
  if (auto begun = begin_receive(arrival); begun != Verdict::kDone) return begun;
  if (auto placed = place(0, from, engine::Tail::kLast); placed != Verdict::kDone) return placed;
  return finish_receive(arrival);
}

Verdict UcEnd::fail(Verdict why, bool) {
  stage_.oracle.wrong(fmt::format("{}: fails with verdict {}", name(), static_cast<int>(why)));
  return Verdict::kDone;
}

bool UcEnd::whole(const Letter& letter) const {
  return is_pattern(letter.pattern, 0,
                    std::span(memory_).subspan(letter.place, letter.datagram.request.length));
}

void UcEnd::judge_memory() {
  for (auto& letter : peer_->letters()) {
    const auto& request = letter.datagram.request;
    if (request.kind != engine::Request::Kind::kWrite) continue;
    if (!request.has_imm && request.length > 0 && whole(letter)) letter.arrived = 1;
    // A part of a broken WRITE may stay, byte by byte as it was sent.
    std::vector<std::byte> sent(request.length);
    fill_pattern(letter.pattern, 0, sent);
    for (uint64_t i = 0; i < request.length; ++i)
      if (memory_[letter.place + i] != sent[i] && memory_[letter.place + i] != kUntouched)
        return stage_.oracle.wrong(fmt::format("{}: a byte from nowhere at {}", name(), letter.place + i));
  }
}

UdEnd::UdEnd(const UnreliableConfig& config, const Stage& stage, Random random, base::Psn sends)
    : UnreliableEnd(config, stage, random),
      requester_({.source = config.qpn,
                  .first_psn = sends,
                  .qkey = config.qkey,
                  .mtu = config.mtu,
                  .capacity = kCapacity},
                 *this),
      responder_({.qkey = config.qkey, .mtu = config.mtu}, *this) {}

void UdEnd::take(Instant now, const roce::Packet& packet) {
  causes_.count(responder_.on_packet(now, packet));
}

bool UdEnd::transmit(Instant now, Network& network) {
  network_ = &network;
  return requester_.poll_transmit(now, *this);
}

engine::PacketSink& UdEnd::way(const engine::DatagramRequest& request) {
  return sink_.emplace(*network_, config_.host, static_cast<HostId>(request.address));
}

// Nothing tells copies apart, so one comes for each time that the network had it; but it is always a datagram
// that its source has sent to us.
Verdict UdEnd::deliver(const Arrival& arrival, std::span<const iovec> from) {
  if (busy()) return Verdict::kNoRoom;
  if (receives_ == 0) return Verdict::kNotReady;
  if (arrival.length > config_.receive_bytes) return Verdict::kTooLong;
  std::vector<std::byte> bytes;
  for (const iovec& piece : from)
    bytes.insert(bytes.end(), static_cast<const std::byte*>(piece.iov_base),
                 static_cast<const std::byte*>(piece.iov_base) + piece.iov_len);
  stage_.journal.add(0x3000000 + arrival.length);
  --receives_;
  for (UdEnd* sender : others_) {
    if (sender->config().qpn != arrival.source) continue;
    Letter* found = nullptr;
    for (auto& letter : std::span(sender->letters()).first(sender->posted()))
      if (letter.datagram.target == config_.qpn && !letter.unwanted && matches(letter, arrival, bytes) &&
          (found == nullptr || letter.arrived < found->arrived))
        found = &letter;
    if (found == nullptr) break;
    ++found->arrived;
    return Verdict::kDone;
  }
  stage_.oracle.wrong(fmt::format("{}: a datagram of {} B that nobody sent so", name(), arrival.length));
  return Verdict::kDone;
}

Verdict UdEnd::fail(Verdict why) {
  stage_.oracle.wrong(fmt::format("{}: fails with verdict {}", name(), static_cast<int>(why)));
  return Verdict::kDone;
}

}  // namespace verbena::sim
