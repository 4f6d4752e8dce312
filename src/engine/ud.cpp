#include "engine/ud.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "engine/message.hpp"

namespace verbena::engine {

namespace {
constexpr uint32_t kOwnQkey = 0x80000000;
}

UdRequester::UdRequester(const UdRequesterConfig& config, RequesterHost& host)
    : config_(config),
      host_(host),
      requests_(std::bit_ceil(std::max(config.capacity, 1u))),
      psn_(config.first_psn) {}

void UdRequester::post(const DatagramRequest& request) {
  CHECK(!full() && request.request.kind == Request::Kind::kSend && !request.request.invalidates);
  requests_[tail_++ % requests_.size()] = request;
}

bool UdRequester::poll_transmit(base::Instant, DatagramWays& ways) {
  if (failed_ || head_ == tail_) return false;
  const DatagramRequest& datagram = requests_[head_ % requests_.size()];
  const Request& request = datagram.request;
  if (request.length > config_.mtu) {
    failed_ = true;
    end_head(RequestStatus::kLocalLength);
    return false;
  }
  PacketSink& sink = ways.way(datagram);
  if (!sink.ready()) return false;
  roce::Packet packet;
  packet.bth.service = roce::Service::kUd;
  packet.bth.operation = operation_for(request, true, true);
  const auto room = sink.room(packet.bth.opcode(), request.length);
  if (request.length > 0 && !host_.gather(head_, 0, room)) {
    failed_ = true;
    end_head(RequestStatus::kLocalProtection);
    return false;
  }
  packet.bth.pkey = config_.pkey;
  packet.bth.destination = datagram.target;
  packet.bth.psn = psn_;
  packet.bth.solicited = request.solicited;
  packet.deth = {(datagram.qkey & kOwnQkey) != 0 ? config_.qkey : datagram.qkey, config_.source};
  packet.imm = request.imm;
  packet.payload = room;
  sink.commit(packet);
  psn_ = psn_ + 1;
  end_head(RequestStatus::kSuccess);
  return true;
}

void UdRequester::end_head(RequestStatus status) { host_.ended(head_++, status); }

DropReason UdResponder::on_packet(base::Instant, const roce::Packet& packet) {
  if (packet.bth.service != roce::Service::kUd || !packet.info().send) return DropReason::kBadOpcode;
  if (failed_) {
    tell_failure();
    return DropReason::kSilence;
  }
  if (packet.deth.qkey != config_.qkey) return DropReason::kBadQkey;  // IBA 9.6.1.4.1
  if (packet.payload.size() > config_.mtu) return DropReason::kTooLong;
  Arrival arrival = arrival_of(packet);
  arrival.length = packet.payload.size();
  arrival.source = packet.deth.source;
  const iovec bytes = bytes_of(packet.payload);
  switch (const Verdict verdict = actions_.deliver(arrival, {&bytes, packet.payload.empty() ? 0u : 1u})) {
    case Verdict::kDone:
      return DropReason::kNone;
    case Verdict::kNotReady:
      return DropReason::kNotReady;
    case Verdict::kNoRoom:
    case Verdict::kAsk:
      return DropReason::kNoRoom;
    case Verdict::kTooLong:
      return DropReason::kTooLong;
    case Verdict::kBadReceive:
    case Verdict::kCorrupt:
      failed_ = true;
      untold_ = verdict;
      tell_failure();
      return DropReason::kRefused;
    default:
      return DropReason::kSilence;
  }
}

void UdResponder::tell_failure() {
  if (untold_ != Verdict::kDone && actions_.fail(untold_) != Verdict::kNoRoom) untold_ = Verdict::kDone;
}

}  // namespace verbena::engine
