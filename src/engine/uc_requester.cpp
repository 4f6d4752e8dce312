#include "engine/uc_requester.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "engine/message.hpp"

namespace verbena::engine {

UcRequester::UcRequester(const UcRequesterConfig& config, RequesterHost& host)
    : config_(config),
      host_(host),
      requests_(std::bit_ceil(std::max(config.capacity, 1u))),
      psn_(config.first_psn) {}

void UcRequester::post(const Request& request) {
  CHECK(!full() && !request.fetches() && !request.invalidates);
  requests_[tail_++ % requests_.size()] = request;
}

bool UcRequester::poll_transmit(base::Instant, PacketSink& sink) {
  if (failed_ || head_ == tail_ || !sink.ready()) return false;
  const Request& request = requests_[head_ % requests_.size()];
  const uint64_t offset = uint64_t{sent_} * config_.mtu;
  const bool last = sent_ + 1 == packets_for(request.length, config_.mtu);
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(request.length - offset, config_.mtu));

  roce::Packet packet;
  packet.bth.service = roce::Service::kUc;
  packet.bth.operation = operation_for(request, sent_ == 0, last);
  const auto room = sink.room(packet.bth.opcode(), length);
  if (length > 0 && !host_.gather(head_, offset, room)) {
    // The other side drops what it has of the message when the next one begins.
    failed_ = true;
    end_head(RequestStatus::kLocalProtection);
    return false;
  }
  packet.bth.pkey = config_.pkey;
  packet.bth.destination = config_.target;
  packet.bth.psn = psn_;
  packet.bth.solicited = last && request.solicited;
  packet.reth = {request.address, request.key, static_cast<uint32_t>(request.length)};
  packet.imm = request.imm;
  packet.payload = room;
  sink.commit(packet);
  psn_ = psn_ + 1;
  ++sent_;
  if (last) end_head(RequestStatus::kSuccess);
  return true;
}

void UcRequester::end_head(RequestStatus status) {
  sent_ = 0;
  host_.ended(head_++, status);
}

}  // namespace verbena::engine
