#include "net/udp_sender.hpp"

#include <algorithm>
#include <cerrno>

#include "net/interfaces.hpp"

namespace verbena::net {
namespace {

constexpr size_t kSlots = 256;
// Recognised peers by slot over IPv4, then over IPv6; then foreign ones over either.
constexpr size_t kForeign = 2 * kSlots;
// Datagrams to a host that isn't there wait in the kernel and use up their socket's buffer: others mustn't
// pay.
constexpr size_t kForeignSockets = 16;
constexpr size_t kSockets = kForeign + kForeignSockets;

// Can the kernel be relied on to send from there, or not at all? Of IPv6 it doesn't look whether a bound
// socket's address is still this host's; and who is bound to a group or to a broadcast address sends from
// any.
bool may_bind_to(const Address& source) {
  if (!source.ipv4()) return false;
  const auto interfaces = list_interfaces();
  return interfaces && std::ranges::any_of(*interfaces, [&](const Interface& one) {
           return std::ranges::find(one.addresses, source) != one.addresses.end();
         });
}

}  // namespace

UdpSender::UdpSender(int buffer_bytes) : buffer_bytes_(buffer_bytes), places_(kSockets) {}

SendingSocket& UdpSender::socket_for(const Route& route) {
  const size_t family = route.to.ipv4() ? 0 : 1;
  const bool by_slot = route.recognised || family == 1;
  const size_t foreign = kForeign + (route.to.bytes[15] ^ route.to.bytes[14]) % kForeignSockets;
  Place& place = places_[by_slot ? family * kSlots + route.slot.value : foreign];
  // Made once: its port is part of packets that may have to be sent again.
  if (!place.first && !place.others && may_bind_to(route.from))
    place.first = SendingSocket(route, route.from, buffer_bytes_);
  if (place.first && place.first.source() == route.from) return place.first;
  if (!place.others) place.others = SendingSocket(route, {}, buffer_bytes_);
  return place.others;
}

bool UdpSender::send(const Run& run) {
  SendingSocket& socket = socket_for(run.route);
  if (!socket) {
    ++counters_.no_socket;
    return false;
  }
  int error = try_to_send(socket, run);
  // Some kernels refuse even lone packets by a socket that cuts where the device can't checksum.
  if ((error == EIO || error == EINVAL) && socket.stop_cutting()) error = try_to_send(socket, run);
  if (error != 0) count_failure(error);
  return error == 0;
}

// 0, or why not.
int UdpSender::try_to_send(SendingSocket& socket, const Run& run) {
  if (run.packets() == 1) return send_each(socket, run);
  const int error = socket.send(run.route, run.bytes, run.segment_bytes);
  // EIO: the device can't checksum; EINVAL: too long, too many, or an old kernel. One by one, then: a
  // recognised peer takes an ICRC made with any segment's ID for a plain datagram, too.
  if (error == EIO || error == EINVAL) {
    ++counters_.split_runs;
    return send_each(socket, run);
  }
  if (error != 0) return error;
  ++counters_.segmented_runs;
  if (socket.cuts_into() == run.segment_bytes) ++counters_.cut_by_socket;
  counters_.packets += run.packets();
  counters_.bytes += run.bytes.size();
  return 0;
}

int UdpSender::send_each(SendingSocket& socket, const Run& run) {
  for (size_t i = 0; i < run.packets(); ++i) {
    const auto packet = run.packet(i);
    if (const int error = socket.send(run.route, packet, 0); error != 0) return error;
    ++counters_.packets;
    counters_.bytes += packet.size();
  }
  return 0;
}

void UdpSender::count_failure(int error) {
  switch (error) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      ++counters_.no_room;
      break;
    case EMSGSIZE:
      ++counters_.too_long;
      break;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENODEV:
    case EADDRNOTAVAIL:
    case EINVAL:  // a source address that isn't ours, or a link-local destination without its interface
      ++counters_.unreachable;
      break;
    case EPERM:
    case EACCES:
      ++counters_.forbidden;
      break;
    case EBADF:
    case ENOTSOCK:
      ++counters_.closed;
      break;
    default:
      ++counters_.failed;
  }
}

}  // namespace verbena::net
