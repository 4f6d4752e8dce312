// What a responder sends: acknowledgements, NAKs, what was read.
#include <algorithm>

#include "engine/credits.hpp"
#include "engine/nak_syndrome.hpp"
#include "engine/rc_responder.hpp"

namespace verbena::engine {

using base::Instant;
using base::Psn;
using roce::Operation;
namespace syndrome = roce::syndrome;

bool RcResponder::poll_transmit(Instant, PacketSink& sink) {
  tell_failure();
  if (!sink.ready()) return false;
  if (!due_.empty()) return send_due(sink);
  if (nak_ == 0 && !ack_due_) return false;
  if (nak_ != 0) {
    send_aeth(nak_, nak_psn_, sink);
    nak_ = 0;
  } else {
    send_aeth(ack_syndrome(), expected_ + Psn::kMask, sink);
  }
  ack_due_ = false;
  return true;
}

roce::Packet RcResponder::take_acknowledgement() {
  ack_due_ = false;
  return aeth_packet(ack_syndrome(), expected_ + Psn::kMask);
}

// XRC knows no credits: what a shared receive queue has is promised to nobody.
uint8_t RcResponder::ack_syndrome() {
  const bool counted = config_.service != roce::Service::kXrc;
  return static_cast<uint8_t>(syndrome::kAck | credit_code(counted ? actions_.credits() : kCreditsUncounted));
}

roce::Packet RcResponder::answer(Operation operation, Psn psn) const {
  roce::Packet packet;
  packet.bth.service = config_.service;
  packet.bth.operation = operation;
  packet.bth.pkey = config_.pkey;
  packet.bth.destination = config_.requester;
  packet.bth.psn = psn;
  return packet;
}

roce::Packet RcResponder::aeth_packet(uint8_t code, Psn psn) const {
  roce::Packet packet = answer(Operation::kAcknowledge, psn);
  packet.aeth = {code, msn_};
  return packet;
}

void RcResponder::send_aeth(uint8_t code, Psn psn, PacketSink& sink) {
  const roce::Packet packet = aeth_packet(code, psn);
  (void)sink.room(packet.bth.opcode(), 0);
  sink.commit(packet);
}

bool RcResponder::send_due(PacketSink& sink) {
  Due& due = due_.front();
  const Job& kept = job(due.job);
  if (kept.atomic) {
    roce::Packet packet = answer(Operation::kAtomicAcknowledge, kept.first);
    packet.aeth = {ack_syndrome(), kept.msn};
    packet.atomic_before = kept.before;
    (void)sink.room(packet.bth.opcode(), 0);
    sink.commit(packet);
    ++due.next;
  } else if (!send_read_run(due, sink) && !send_read_response(due, sink)) {
    return false;
  }
  if (!due_.empty() && due_.front().next == due_.front().end) due_.erase(due_.begin());
  return true;
}

// The next answer, without what was read.
roce::Packet RcResponder::read_response(const Due& due) {
  const Job& kept = job(due.job);
  const bool first = due.next == due.begin || due.next % kept.each == 0;
  const bool last = due.next + 1 == due.end || (due.next + 1) % kept.each == 0;
  roce::Packet packet = answer(first && last ? Operation::kReadResponseOnly
                               : first       ? Operation::kReadResponseFirst
                               : last        ? Operation::kReadResponseLast
                                             : Operation::kReadResponseMiddle,
                               kept.first + due.next);
  if (packet.info().aeth) packet.aeth = {ack_syndrome(), (kept.msn + due.next / kept.each) & 0xffffff};
  return packet;
}

// Between the first answer and the last all are alike; so are whole pairs.
bool RcResponder::send_read_run(Due& due, PacketSink& sink) {
  const Job& kept = job(due.job);
  uint32_t end = due.end - 1;
  if (in_pairs(kept)) {
    end = static_cast<uint32_t>(std::min<uint64_t>(due.end, kept.range.length / config_.mtu));
    end -= end % roce::kPair;
  }
  if (due.next + kWorthARun > end) return false;
  const roce::Packet packet = read_response(due);
  const bool begins = packet.info().first;
  const bool ends = packet.info().last;
  if (in_pairs(kept) ? begins && ends : begins) return false;
  const auto count = static_cast<uint32_t>(
      std::min<size_t>(end - due.next, sink.run_room(packet.bth.opcode(), config_.mtu)));
  if (count < kWorthARun || aim(kept.srq, false) != Verdict::kDone) return false;
  const size_t bytes = size_t{count} * config_.mtu;
  const std::byte* memory =
      actions_.in_place({kept.range.key, kept.range.address + uint64_t{due.next} * config_.mtu, bytes});
  if (memory == nullptr) return false;
  sink.commit_run(packet, {memory, bytes}, config_.mtu);
  due.next += count;
  return true;
}

bool RcResponder::send_read_response(Due& due, PacketSink& sink) {
  const Job& kept = job(due.job);
  const uint64_t offset = uint64_t{due.next} * config_.mtu;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(kept.range.length - offset, config_.mtu));
  roce::Packet packet = read_response(due);
  const auto room = sink.room(packet.bth.opcode(), length);
  const iovec into{room.data(), length};
  auto verdict = aim(kept.srq, false);
  if (verdict == Verdict::kDone)
    verdict =
        actions_.read({kept.range.key, kept.range.address + offset, length}, {&into, 1}, Tail::kAnyOrder);
  if (verdict == Verdict::kNoRoom || verdict == Verdict::kAsk) return false;
  if (verdict != Verdict::kDone && verdict != Verdict::kSilence && due.again) {
    // It was carried out before, and most likely answered: whoever has the answer overlooks this NAK, and
    // nothing of what came since is at fault.
    send_aeth(syndrome_of(verdict), packet.bth.psn, sink);
    due.next = due.end;
    return true;
  }
  if (verdict != Verdict::kDone) {
    due_.clear();
    if (verdict == Verdict::kSilence) return nak_ != 0;
    // The region went away between two answers: the READ ends there.
    fail(verdict, false, packet.bth.psn, kept.srq);
    return true;
  }
  packet.payload = room;
  sink.commit(packet);
  ++due.next;
  return true;
}

}  // namespace verbena::engine
