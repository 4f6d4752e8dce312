#include "agent/qp1.hpp"

#include <fcntl.h>

#include "base/check.hpp"
#include "roce/codec.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"

namespace verbena::agent {
namespace {

constexpr size_t kGreetingPacketBytes = roce::kGreetingBytes + roce::kIcrcBytes;

}  // namespace

base::Result<std::unique_ptr<Qp1>> Qp1::create(int socket, Count count, OnMad on_mad) {
  base::UniqueFd own(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!own) return base::fail_errno("duplicating QP1's socket");
  // Few and short messages come here.
  auto link = net::UdpLink::create(std::move(own), {.receive_bytes = 256 << 10, .send_bytes = 256 << 10});
  if (!link) return std::unexpected(link.error());
  (*link)->tell_hops();  // an answer has the traffic class of what it answers
  return std::unique_ptr<Qp1>(new Qp1(std::move(*link), std::move(count), std::move(on_mad)));
}

void Qp1::read() {
  constexpr size_t kBudget = 64;  // a flood must not keep the agent from its clients
  (void)link_->receive(*this, kBudget);
  transmitter_.flush();
}

void Qp1::on_packet(const net::Received& received) {
  constexpr size_t kBthBytes = 12;
  if (received.bytes.size() < kBthBytes)
    count_(arena::Counter::kPacketsRunt);
  else if (!take(received))
    count_(arena::Counter::kPacketsUnclaimed);
}

bool Qp1::take(const net::Received& received) {
  if (received.bytes.size() < kGreetingPacketBytes) return false;
  if (!roce::icrc_fits(received.flow(), roce::IdRule::kAny, received.segment, received.bytes)) return false;
  const auto packet = roce::parse(received.bytes.first(received.bytes.size() - roce::kIcrcBytes));
  if (!packet || packet->bth.destination != roce::kGeneralServicesQpn) return false;
  const auto greeting = roce::parse_greeting(*packet);
  if (!greeting) return take_mad(received, *packet);
  if (greeting->answer) return false;
  const auto space = transmitter_.space(kGreetingPacketBytes);
  roce::emit_greeting(
      {.answer = true, .from = roce::kGeneralServicesQpn, .transaction = greeting->transaction},
      greeting->from, space.first<roce::kGreetingBytes>());
  transmitter_.commit({.from = received.to,
                       .to = received.from,
                       .interface = received.interface,
                       .slot = greeting->from.slot()},
                      kGreetingPacketBytes);
  return true;
}

bool Qp1::take_mad(const net::Received& received, const roce::Packet& packet) {
  if (packet.bth.opcode() != roce::opcode_of(roce::Service::kUd, roce::Operation::kSendOnly) ||
      packet.deth.qkey != roce::kGeneralServicesQkey || packet.deth.source != roce::kGeneralServicesQpn)
    return false;
  constexpr uint8_t kDscp = 0xfc;
  cm::Way way{.interface = received.from.link_local() ? received.interface : 0,
              .traffic_class = static_cast<uint8_t>(received.traffic_class & kDscp)};
  std::memcpy(way.local.data(), received.to.bytes.data(), way.local.size());
  std::memcpy(way.remote.data(), received.from.bytes.data(), way.remote.size());
  return on_mad_(way, packet.payload);
}

void Qp1::send(const cm::Outgoing& outgoing) {
  // As the kernel's rxe sends them, in every bit.
  roce::Packet packet;
  packet.bth.service = roce::Service::kUd;
  packet.bth.operation = roce::Operation::kSendOnly;
  packet.bth.migrated = false;
  packet.bth.ack_request = true;
  packet.bth.destination = roce::kGeneralServicesQpn;
  packet.bth.psn = psn_;
  packet.deth = {roce::kGeneralServicesQkey, roce::kGeneralServicesQpn};
  packet.payload = outgoing.mad;
  psn_ = psn_ + 1;
  const auto space = transmitter_.space(kGreetingPacketBytes);
  const size_t bytes = roce::emit(packet, space);
  CHECK(bytes == roce::kGreetingBytes);
  const auto& way = outgoing.way;
  net::Route route{.interface = way.interface,
                   .traffic_class = way.traffic_class,
                   .hop_limit = way.hop_limit,
                   .slot = base::kAgentSlot};
  std::memcpy(route.from.bytes.data(), way.local.data(), way.local.size());
  std::memcpy(route.to.bytes.data(), way.remote.data(), way.remote.size());
  transmitter_.commit(route, kGreetingPacketBytes);
}

}  // namespace verbena::agent
