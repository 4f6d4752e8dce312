#include "agent/qp1.hpp"

#include <fcntl.h>

#include "roce/codec.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"

namespace verbena::agent {
namespace {

constexpr size_t kGreetingPacketBytes = roce::kGreetingBytes + roce::kIcrcBytes;

}  // namespace

base::Result<std::unique_ptr<Qp1>> Qp1::create(int socket, Count count) {
  base::UniqueFd own(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!own) return base::fail_errno("duplicating QP1's socket");
  // Few and short messages come here.
  auto link = net::UdpLink::create(std::move(own), {.receive_bytes = 256 << 10, .send_bytes = 256 << 10});
  if (!link) return std::unexpected(link.error());
  return std::unique_ptr<Qp1>(new Qp1(std::move(*link), std::move(count)));
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
  if (!greeting || greeting->answer) return false;
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

}  // namespace verbena::agent
