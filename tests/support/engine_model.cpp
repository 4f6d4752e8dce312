#include "support/engine_model.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace verbena::test {

using engine::Verdict;

std::string ModelActions::state() const {
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::string all = text(memory_);
  // Completions are only ever added, so their number and the last one tell it all.
  if (!completions_.empty()) all += text(completions_.back().bytes);
  return all + " " + std::to_string(completions_.size()) + " " + std::to_string(receives_) + " " +
         std::to_string(failures_);
}

Verdict ModelActions::aim(uint32_t srq) {
  CHECK(queues_ > 0);  // a reliable connection never aims
  if (busy()) return Verdict::kNoRoom;
  if (srq >= queues_) return Verdict::kNoSharedQueue;
  aimed_ = srq;
  return Verdict::kDone;
}

Verdict ModelActions::check(const engine::RemoteRange& range, engine::RemoteUse) {
  if (busy()) return Verdict::kNoRoom;
  if (range.length == 0) return Verdict::kDone;
  if (range.key != key_) return Verdict::kBadKey;
  if (range.address < address_ || range.length > memory_.size() ||
      range.address - address_ > memory_.size() - range.length)
    return Verdict::kBadBounds;
  return Verdict::kDone;
}

Verdict ModelActions::write(const engine::RemoteRange& range, std::span<const iovec> from, engine::Tail) {
  if (auto verdict = check(range, engine::RemoteUse::kWrite); verdict != Verdict::kDone) return verdict;
  uint64_t offset = range.address - address_;
  for (const iovec& piece : from) {
    if (piece.iov_len == 0) continue;
    CHECK(offset + piece.iov_len <= memory_.size());
    std::memcpy(memory_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

Verdict ModelActions::read(const engine::RemoteRange& range, std::span<const iovec> into, engine::Tail) {
  if (auto verdict = check(range, engine::RemoteUse::kRead); verdict != Verdict::kDone) return verdict;
  uint64_t offset = range.address - address_;
  for (const iovec& piece : into) {
    if (piece.iov_len == 0) continue;
    CHECK(offset + piece.iov_len <= memory_.size());
    std::memcpy(piece.iov_base, memory_.data() + offset, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

size_t ModelActions::write_more(const engine::RemoteRange& range, size_t each, engine::Tail,
                                engine::MorePayloads& payloads) {
  if (check(range, engine::RemoteUse::kWrite) != Verdict::kDone) return 0;
  size_t count = 0;
  for (; (count + 1) * each <= range.length; ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    CHECK(payload.size() == each);
    std::memcpy(memory_.data() + (range.address - address_) + count * each, payload.data(), each);
  }
  return count;
}

const std::byte* ModelActions::in_place(const engine::RemoteRange& range) {
  if (check(range, engine::RemoteUse::kRead) != Verdict::kDone) return nullptr;
  return memory_.data() + (range.address - address_);
}

Verdict ModelActions::atomic(const engine::AtomicRequest& request, uint64_t& before) {
  if (auto verdict = check({request.key, request.address, 8}, engine::RemoteUse::kAtomic);
      verdict != Verdict::kDone)
    return verdict;
  if (request.address % 8 != 0) return Verdict::kMisaligned;
  std::byte* const at = memory_.data() + (request.address - address_);
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  before = value;
  if (request.kind == engine::AtomicKind::kFetchAdd)
    value += request.first;
  else if (value == request.first)
    value = request.second;
  std::memcpy(at, &value, sizeof value);
  return Verdict::kDone;
}

Verdict ModelActions::begin_receive(const engine::Arrival& arrival) {
  if (busy()) return Verdict::kNoRoom;
  if (receives_ == 0) return Verdict::kNotReady;
  if (arrival.kind == engine::Arrival::Kind::kSend && arrival.length > receive_bytes_)
    return Verdict::kTooLong;
  receiving_.clear();
  begun_ = aimed_;
  return Verdict::kDone;
}

Verdict ModelActions::place(uint64_t offset, std::span<const iovec> from, engine::Tail) {
  if (busy()) return Verdict::kNoRoom;
  CHECK(receives_ > 0 && begun_ == aimed_);  // only within a message that has begun
  for (const iovec& piece : from) {
    if (offset + piece.iov_len > receive_bytes_) return Verdict::kTooLong;
    receiving_.resize(std::max<size_t>(receiving_.size(), offset + piece.iov_len));
    if (piece.iov_len > 0) std::memcpy(receiving_.data() + offset, piece.iov_base, piece.iov_len);
    offset += piece.iov_len;
  }
  return Verdict::kDone;
}

size_t ModelActions::place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) {
  if (busy()) return 0;
  size_t count = 0;
  for (; offset + each <= receive_bytes_; ++count, offset += each) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    CHECK(payload.size() == each && offset == receiving_.size());
    receiving_.insert(receiving_.end(), payload.begin(), payload.end());
  }
  return count;
}

Verdict ModelActions::finish_receive(const engine::Arrival& arrival) {
  CHECK(receives_ > 0 && begun_ == aimed_);
  if (arrival.kind == engine::Arrival::Kind::kSend) CHECK(arrival.length == receiving_.size());
  --receives_;
  completions_.push_back({arrival, std::move(receiving_)});
  receiving_.clear();
  return Verdict::kDone;
}

Verdict ModelActions::deliver(const engine::Arrival& arrival, std::span<const iovec> from) {
  if (auto begun = begin_receive(arrival); begun != Verdict::kDone) return begun;
  if (auto placed = place(0, from, engine::Tail::kLast); placed != Verdict::kDone) return placed;
  return finish_receive(arrival);
}

Verdict ModelActions::fail(Verdict, bool) {
  if (busy()) return Verdict::kNoRoom;
  ++failures_;
  return Verdict::kDone;
}

bool ModelHost::gather(uint32_t number, uint64_t offset, std::span<std::byte> into) {
  if (number == unreadable_) return false;
  if (const auto found = given_.find(number); found != given_.end()) {
    CHECK(offset + into.size() <= found->second.size());
    std::ranges::copy(std::span(found->second).subspan(offset, into.size()), into.begin());
    return true;
  }
  for (size_t i = 0; i < into.size(); ++i) into[i] = static_cast<std::byte>((offset + i) * 7 + number);
  return true;
}

bool ModelHost::scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from, engine::Tail) {
  if (number == unwritable_) return false;
  scattered_.push_back({number, offset, {from.begin(), from.end()}});
  return true;
}

size_t ModelHost::scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                               engine::MorePayloads& payloads) {
  if (number == unwritable_) return 0;
  size_t count = 0;
  for (; count < most; ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    CHECK(payload.size() == each && scatter(number, offset + count * each, payload, engine::Tail::kAnyOrder));
  }
  return count;
}

const std::byte* ModelHost::in_place(uint32_t number, uint64_t offset, size_t length) {
  lent_.resize(length);
  return gather(number, offset, lent_) ? lent_.data() : nullptr;
}

std::span<std::byte> KeepingSink::room(uint8_t opcode, size_t payload_bytes) {
  CHECK(roce::opcode_info(opcode).known);
  room_.assign(payload_bytes, std::byte{0xee});
  return room_;
}

void KeepingSink::commit(const roce::Packet& packet) {
  CHECK(packet.payload.size() == room_.size());
  sent.push_back({packet, room_});
}

}  // namespace verbena::test
