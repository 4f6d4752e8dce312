#include "engine/uc_responder.hpp"

#include "engine/message.hpp"

namespace verbena::engine {

using base::Psn;

namespace {
// A packet from so near in the past is late or a copy. One from further back comes from a sender that began
// anew.
constexpr uint32_t kRecent = 1 << 15;
}  // namespace

UcResponder::UcResponder(const UcResponderConfig& config, ResponderActions& actions)
    : config_(config), actions_(actions), expected_(config.first_psn) {}

DropReason UcResponder::on_packet(base::Instant, const roce::Packet& packet) {
  const auto& info = packet.info();
  if (packet.bth.service != roce::Service::kUc || !info.request) return DropReason::kBadOpcode;
  if (failed_) {
    tell_failure();
    return DropReason::kSilence;
  }
  const Psn psn = packet.bth.psn;
  if (psn.before(expected_) && expected_.since(psn) <= kRecent) return DropReason::kDuplicate;
  // Whatever is missing, the message it belongs to is lost; the next one may be whole.
  if (message_ != Message::kNone && (psn != expected_ || info.first)) {
    message_ = Message::kNone;
    actions_.abandon_receive();
  }
  expected_ = psn + 1;
  const bool follows = message_ == (info.send ? Message::kSend : Message::kWrite);
  if (!info.first && !follows) return drop(Verdict::kBadSequence);
  if (!length_fits(packet, config_.mtu)) return drop(Verdict::kBadSequence);
  if (info.first) offset_ = 0;
  const Verdict verdict = info.send ? on_send(packet) : on_write(packet);
  if (verdict != Verdict::kDone) return drop(verdict);
  offset_ += packet.payload.size();
  message_ = info.last ? Message::kNone : info.send ? Message::kSend : Message::kWrite;
  return DropReason::kNone;
}

Verdict UcResponder::on_send(const roce::Packet& packet) {
  const auto& info = packet.info();
  Arrival arrival = arrival_of(packet);
  const iovec bytes = bytes_of(packet.payload);
  const std::span<const iovec> from(&bytes, packet.payload.empty() ? 0 : 1);
  arrival.length = info.last ? offset_ + packet.payload.size() : 0;
  if (info.first && info.last) return actions_.deliver(arrival, from);
  if (info.first)
    if (auto begun = actions_.begin_receive(arrival); begun != Verdict::kDone) return begun;
  const auto placed = actions_.place(offset_, from, info.last ? Tail::kLast : Tail::kAnyOrder);
  if (placed != Verdict::kDone || !info.last) return placed;
  return actions_.finish_receive(arrival);
}

Verdict UcResponder::on_write(const roce::Packet& packet) {
  const auto& info = packet.info();
  const uint64_t size = packet.payload.size();
  if (info.first) {
    write_ = {packet.reth.key, packet.reth.address, packet.reth.length};
    if (write_.length > kLongestMessage) return Verdict::kBadSequence;
    if (auto allowed = actions_.check(write_, RemoteUse::kWrite); allowed != Verdict::kDone) return allowed;
  }
  const uint64_t rest = write_.length - offset_;
  if (info.last ? size != rest : size >= rest) return Verdict::kBadSequence;
  Arrival arrival = arrival_of(packet);
  arrival.kind = Arrival::Kind::kWriteImm;
  arrival.length = write_.length;
  if (info.imm)
    if (auto begun = actions_.begin_receive(arrival); begun != Verdict::kDone) return begun;
  const iovec bytes = bytes_of(packet.payload);
  const auto written = actions_.write({write_.key, write_.address + offset_, size}, {&bytes, 1},
                                      info.last ? Tail::kLast : Tail::kAnyOrder);
  if (written != Verdict::kDone || !info.imm) return written;
  return actions_.finish_receive(arrival);
}

// Nobody is told; the rest of the message is dropped with it.
DropReason UcResponder::drop(Verdict verdict) {
  message_ = Message::kNone;
  // One that is at fault itself ends in an error.
  if (verdict != Verdict::kBadReceive && verdict != Verdict::kCorrupt) actions_.abandon_receive();
  switch (verdict) {
    case Verdict::kSilence:
      return DropReason::kSilence;
    case Verdict::kNotReady:
      return DropReason::kNotReady;
    case Verdict::kNoRoom:
    case Verdict::kAsk:
      return DropReason::kNoRoom;
    case Verdict::kBadSequence:
      return DropReason::kBrokenMessage;
    case Verdict::kTooLong:
      return DropReason::kTooLong;
    case Verdict::kBadReceive:
    case Verdict::kCorrupt:
      // It would stand in the way of every message to come.
      failed_ = true;
      untold_ = verdict;
      tell_failure();
      return DropReason::kRefused;
    default:
      return DropReason::kRefused;
  }
}

void UcResponder::tell_failure() {
  if (untold_ != Verdict::kDone && actions_.fail(untold_, false) != Verdict::kNoRoom)
    untold_ = Verdict::kDone;
}

}  // namespace verbena::engine
