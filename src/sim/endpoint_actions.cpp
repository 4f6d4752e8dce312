// What requests do to an end: the responder's actions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim/endpoint.hpp"
#include "sim/pattern.hpp"

namespace verbena::sim {

using engine::RemoteRange;
using engine::RemoteUse;
using engine::Tail;
using engine::Verdict;

// A queue pair in ERR carries nothing out; now and then there is no room for what an action leaves behind.
bool Endpoint::silent_or_busy(Verdict& verdict) {
  if (in_error())
    verdict = Verdict::kSilence;
  else if (random_.millionths(config_.busy))
    verdict = Verdict::kNoRoom;
  else
    return false;
  return true;
}

Verdict Endpoint::aim(uint32_t srq) {
  aimed_.reset();
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  if (!is_xrc()) oracle_.wrong(fmt::format("{}: a reliable connection is aimed", name()));
  if (!pools_.has(srq)) return Verdict::kNoSharedQueue;
  aimed_ = srq;
  return Verdict::kDone;
}

// Of XRC each shared receive queue has a domain of its own, and keys of its own to the same memory.
uint32_t Endpoint::region_of(uint32_t key) const {
  const uint32_t which = key - key_base();
  return is_xrc() ? which % region::kKeysOfQueue : which;
}

Verdict Endpoint::check(const RemoteRange& range, RemoteUse use) {
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  if (is_xrc() && !aimed_) oracle_.wrong(fmt::format("{}: no queue was aimed at", name()));
  if (range.length == 0) return Verdict::kDone;
  const uint32_t which = region_of(range.key);
  if (aimed_ && (range.key - key_base()) / region::kKeysOfQueue != *aimed_ - ReceivePoolsConfig::kFirstNumber)
    return Verdict::kWrongDomain;
  if (which == region::kForeign) return Verdict::kWrongDomain;
  if (which != region::kData && which != region::kReadOnly && which != region::kFragile)
    return Verdict::kBadKey;
  if (range.address < region::kAddress || range.length > data_.size() ||
      range.address - region::kAddress > data_.size() - range.length)
    return Verdict::kBadBounds;
  if (which != region::kData && use != RemoteUse::kRead) return Verdict::kNoAccess;
  return Verdict::kDone;
}

Verdict Endpoint::write(const RemoteRange& range, std::span<const iovec> from, Tail) {
  if (auto verdict = check(range, RemoteUse::kWrite); verdict != Verdict::kDone) return verdict;
  uint64_t offset = range.address - region::kAddress;
  for (const iovec& piece : from) {
    if (piece.iov_len > 0) std::memcpy(data_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

Verdict Endpoint::read(const RemoteRange& range, std::span<const iovec> into, Tail) {
  if (auto verdict = check(range, RemoteUse::kRead); verdict != Verdict::kDone) return verdict;
  const uint32_t which = region_of(range.key);
  uint64_t offset = range.address - region::kAddress;
  if (which == region::kFragile) {
    // It lasts for the first half of the one READ that is planned of it.
    for (const Planned& planned : peer_->plan_)
      if (planned.request.key == range.key &&
          range.address + range.length > planned.request.address + planned.request.length / 2)
        return Verdict::kUnmapped;
  }
  for (const iovec& piece : into) {
    const std::span<std::byte> bytes(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
    if (which == region::kReadOnly)
      fill_pattern(read_only_pattern_, offset, bytes);
    else if (!bytes.empty())
      std::memcpy(bytes.data(), data_.data() + offset, bytes.size());
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

size_t Endpoint::write_more(const RemoteRange& range, size_t each, Tail, engine::MorePayloads& payloads) {
  if (check(range, RemoteUse::kWrite) != Verdict::kDone) return 0;
  size_t count = 0;
  for (; (count + 1) * each <= range.length; ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    std::ranges::copy(
        payload, data_.begin() + static_cast<ptrdiff_t>(range.address - region::kAddress + count * each));
  }
  return count;
}

const std::byte* Endpoint::in_place(const RemoteRange& range) {
  lent_.resize(range.length);
  const iovec into{lent_.data(), lent_.size()};
  return read(range, {&into, 1}, Tail::kAnyOrder) == Verdict::kDone ? lent_.data() : nullptr;
}

Verdict Endpoint::atomic(const engine::AtomicRequest& request, uint64_t& before) {
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  const bool shared = region_of(request.key) == region::kCounter;
  if (!shared)
    if (auto verdict = check({request.key, request.address, 8}, RemoteUse::kAtomic);
        verdict != Verdict::kDone)
      return verdict;
  if (request.address % 8 != 0) return Verdict::kMisaligned;
  uint64_t value = counter_.value;
  const uint64_t offset = request.address - region::kAddress;
  if (!shared) std::memcpy(&value, data_.data() + offset, sizeof value);
  before = value;
  if (request.kind == engine::AtomicKind::kFetchAdd)
    value += request.first;
  else if (value == request.first)
    value = request.second;
  if (shared)
    counter_.value = value;
  else
    std::memcpy(data_.data() + offset, &value, sizeof value);
  return Verdict::kDone;
}

uint64_t Endpoint::receive_capacity() const { return awaited().receive_bytes; }

// Of a pool it is taken at once, since others would, too.
bool Endpoint::receive_is_there() {
  if (!is_xrc()) return receives_posted_ != consumed_;
  if (!aimed_ || (claimed_ && claimed_ != aimed_) || consumed_ >= peer_->consuming_.size()) {
    oracle_.wrong(fmt::format("{}: a message that nobody sent, or for another queue", name()));
    return false;
  }
  if (!claimed_ && !pools_.take(*aimed_)) return false;
  claimed_ = aimed_;
  return true;
}

Verdict Endpoint::begin_receive(const engine::Arrival& arrival) {
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  if (!receive_is_there()) return Verdict::kNotReady;
  if (arrival.kind == engine::Arrival::Kind::kSend && arrival.length > receive_capacity())
    return Verdict::kTooLong;
  return Verdict::kDone;
}

Verdict Endpoint::place(uint64_t offset, std::span<const iovec> from, Tail) {
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  for (const iovec& piece : from) {
    if (offset + piece.iov_len > receive_capacity()) return Verdict::kTooLong;
    if (receiving_.size() < offset + piece.iov_len) receiving_.resize(offset + piece.iov_len);
    if (piece.iov_len > 0) std::memcpy(receiving_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

size_t Endpoint::place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) {
  if (Verdict verdict; silent_or_busy(verdict)) return 0;
  size_t count = 0;
  for (; offset + each <= receive_capacity(); ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    receiving_.resize(offset + each);
    std::ranges::copy(payload, receiving_.begin() + static_cast<ptrdiff_t>(offset));
    offset += each;
  }
  return count;
}

Verdict Endpoint::finish_receive(const engine::Arrival& arrival) {
  if (Verdict verdict; silent_or_busy(verdict)) return verdict;
  if (arrival.invalidates) return Verdict::kBadKey;  // there are no windows here
  check_arrival(arrival);
  ++consumed_;
  claimed_.reset();
  receiving_.clear();
  return Verdict::kDone;
}

Verdict Endpoint::deliver(const engine::Arrival& arrival, std::span<const iovec> from) {
  if (auto begun = begin_receive(arrival); begun != Verdict::kDone) return begun;
  if (auto placed = place(0, from, Tail::kLast); placed != Verdict::kDone) return placed;
  return finish_receive(arrival);
}

// The receive that completes is that of the next message that the peer has planned, whole and once.
void Endpoint::check_arrival(const engine::Arrival& arrival) {
  journal_.add(0x1000000 + consumed_);
  journal_.say(events_.now(), fmt::format("{} receive {}: {} B", name(), consumed_, arrival.length));
  if (is_xrc() ? !claimed_ : consumed_ >= receives_posted_)
    return oracle_.wrong(fmt::format("{}: no receive to complete", name()));
  const Planned& planned = awaited();
  const auto& request = planned.request;
  if (is_xrc() && (claimed_ != request.srq || aimed_ != request.srq))
    return oracle_.wrong(fmt::format("{}: receive {} is of another queue", name(), consumed_));
  const bool send = request.kind == engine::Request::Kind::kSend;
  if (peer_->consuming_[consumed_] >= peer_->posted_ || arrival.length != request.length ||
      arrival.solicited != request.solicited || arrival.has_imm != request.has_imm ||
      (arrival.has_imm && arrival.imm != __builtin_bswap32(request.imm)) ||
      (arrival.kind == engine::Arrival::Kind::kSend) != send)
    return oracle_.wrong(fmt::format("{}: receive {} isn't what the peer sent", name(), consumed_));
  if (send && (receiving_.size() != request.length || !is_pattern(planned.pattern, 0, receiving_)))
    oracle_.wrong(fmt::format("{}: receive {} has wrong bytes", name(), consumed_));
}

uint32_t Endpoint::credits() {
  if (is_xrc()) oracle_.wrong(fmt::format("{}: credits of a shared queue are asked for", name()));
  return config_.counts_credits ? receives_posted_ - consumed_ : UINT32_MAX;
}

Verdict Endpoint::fail(Verdict why, bool) {
  if (in_error()) return Verdict::kDone;
  if (random_.millionths(config_.busy * 4)) return Verdict::kNoRoom;
  journal_.say(events_.now(),
               fmt::format("{} fails by a request: verdict {}", name(), static_cast<int>(why)));
  trouble_ = Trouble::kPeersRequest;
  for (const Planned& planned : peer_->plan_)
    if (planned.provoked != engine::RequestStatus::kSuccess) return Verdict::kDone;
  oracle_.wrong(fmt::format("{}: fails with verdict {}, though no request was at fault", name(),
                            static_cast<int>(why)));
  return Verdict::kDone;
}

}  // namespace verbena::sim
