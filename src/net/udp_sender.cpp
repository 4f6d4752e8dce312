#include "net/udp_sender.hpp"

#include <linux/filter.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.hpp"
#include "net/interfaces.hpp"
#include "net/message_calls.hpp"
#include "net/socket_option.hpp"
#include "net/steering.hpp"

namespace verbena::net {
namespace {

constexpr size_t kSlots = 256;
// Recognised peers by slot over IPv4, then over IPv6; then foreign ones over either.
constexpr size_t kForeign = 2 * kSlots;
// Datagrams to a host that isn't there wait in the kernel and use up their socket's buffer: others mustn't
// pay.
constexpr size_t kForeignSockets = 16;
constexpr size_t kSockets = kForeign + kForeignSockets;

// Nobody answers to these sockets' ports: what a stranger sends there must not fill memory.
void accept_nothing(int socket) {
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog nothing{1, program};
  ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &nothing, sizeof nothing);
}

// What the sockets say by themselves, so that most messages needn't.
constexpr int kUsualTrafficClass = 0;
constexpr int kUsualHopLimit = 64;

bool set_usual(int socket, bool ipv4) {
  return ipv4 ? set_option(socket, IPPROTO_IP, IP_TTL, kUsualHopLimit) &&
                    set_option(socket, IPPROTO_IP, IP_MULTICAST_TTL, kUsualHopLimit)
              : set_option(socket, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kUsualHopLimit) &&
                    set_option(socket, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kUsualHopLimit);
}

// A message to where a route leads, with all that the kernel is to put into its headers and wouldn't by
// itself: `source` is what the socket is bound to, if to anything.
class Message {
 public:
  Message(const Route& route, const Address& source) {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    // The kernel refuses a TTL of 0.
    const int hop_limit = route.hop_limit == 0 ? 1 : route.hop_limit;
    const int traffic_class = route.traffic_class;
    const uint32_t interface = route.to.link_local() || route.to.multicast() ? route.interface : 0;
    if (route.to.ipv4()) {
      to4_ = {.sin_family = AF_INET, .sin_port = htons(kRocePort)};
      std::memcpy(&to4_.sin_addr, &route.to.bytes[12], 4);
      header_.msg_name = &to4_;
      header_.msg_namelen = sizeof to4_;
      in_pktinfo told{.ipi_ifindex = static_cast<int>(interface)};
      std::memcpy(&told.ipi_spec_dst, &route.from.bytes[12], 4);
      if (interface != 0 || route.from != source) add(IPPROTO_IP, IP_PKTINFO, told);
      if (traffic_class != kUsualTrafficClass) add(IPPROTO_IP, IP_TOS, traffic_class);
      if (hop_limit != kUsualHopLimit) add(IPPROTO_IP, IP_TTL, hop_limit);
    } else {
      to6_ = {.sin6_family = AF_INET6, .sin6_port = htons(kRocePort), .sin6_scope_id = interface};
      std::memcpy(&to6_.sin6_addr, route.to.bytes.data(), 16);
      header_.msg_name = &to6_;
      header_.msg_namelen = sizeof to6_;
      in6_pktinfo told{.ipi6_ifindex = interface};
      std::memcpy(&told.ipi6_addr, route.from.bytes.data(), 16);
      add(IPPROTO_IPV6, IPV6_PKTINFO, told);
      if (traffic_class != kUsualTrafficClass) add(IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
      if (hop_limit != kUsualHopLimit) add(IPPROTO_IPV6, IPV6_HOPLIMIT, hop_limit);
    }
  }
  Message(const Message&) = delete;  // it points into itself

  void segment(uint16_t bytes) { add(IPPROTO_UDP, UDP_SEGMENT, bytes); }

  // 0, or why not.
  int send(int fd, std::span<const std::byte> bytes) {
    if (header_.msg_controllen == 0)
      return send_bytes(fd, bytes, header_.msg_name, header_.msg_namelen) >= 0 ? 0 : errno;
    part_ = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    return send_message(fd, header_) >= 0 ? 0 : errno;
  }

 private:
  template <typename T>
  void add(int level, int type, const T& value) {
    auto* c = reinterpret_cast<cmsghdr*>(control_ + header_.msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(c), &value, sizeof value);
    header_.msg_controllen += CMSG_SPACE(sizeof value);
  }

  msghdr header_{};
  iovec part_{};
  union {
    sockaddr_in to4_;
    sockaddr_in6 to6_;
  };
  // Pktinfo, traffic class, hop limit, segment size.
  alignas(cmsghdr) std::byte control_[CMSG_SPACE(sizeof(in6_pktinfo)) + 3 * CMSG_SPACE(sizeof(int))]{};
};

bool cut_into(int fd, int bytes) { return set_option(fd, IPPROTO_UDP, UDP_SEGMENT, bytes); }

// RoCEv2 asks for source ports from 0xC000 on (annex A17.9.2); should none be free, any will do.
bool bind_high(int fd, sockaddr_in6& own, socklen_t length) {
  for (int tries = 0; tries < 16; ++tries) {
    own.sin6_port = htons(static_cast<uint16_t>(0xc000 | (base::random_u64() & 0x3fff)));
    if (::bind(fd, reinterpret_cast<sockaddr*>(&own), length) == 0) return true;
    if (errno != EADDRINUSE) return false;
  }
  own.sin6_port = 0;
  return ::bind(fd, reinterpret_cast<sockaddr*>(&own), length) == 0;
}

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

UdpSender::Socket& UdpSender::socket_for(const Route& route) {
  const size_t family = route.to.ipv4() ? 0 : 1;
  const bool by_slot = route.recognised || family == 1;
  const size_t foreign = kForeign + (route.to.bytes[15] ^ route.to.bytes[14]) % kForeignSockets;
  Place& place = places_[by_slot ? family * kSlots + route.slot.value : foreign];
  // Made once: its port is part of packets that may have to be sent again.
  if (place.first.port == 0 && place.others.port == 0 && may_bind_to(route.from))
    place.first = make_socket(route, route.from);
  if (place.first.port != 0 && place.first.source == route.from) return place.first;
  if (place.others.port == 0) place.others = make_socket(route, {});
  return place.others;
}

UdpSender::Socket UdpSender::make_socket(const Route& route, const Address& source) const {
  const bool ipv4 = route.to.ipv4();
  base::UniqueFd fd(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {};
  accept_nothing(fd.get());
  set_option(fd.get(), SOL_SOCKET, SO_SNDBUF, buffer_bytes_);
  sockaddr_in6 own{.sin6_family = static_cast<sa_family_t>(ipv4 ? AF_INET : AF_INET6)};
  socklen_t length = ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (ipv4) std::memcpy(&reinterpret_cast<sockaddr_in&>(own).sin_addr, &source.bytes[12], 4);
  // Without fragmentation, and never connected, the kernel gives each plain datagram the ID 0 (DESIGN 2.4).
  const bool whole = ipv4 ? set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
                          : set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
                                set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  // Foreign peers get what hardware sends: no UDP checksum. IPv6 forbids that, and who ignores it over IPv4
  // ignores it there, too.
  if (!route.recognised && ipv4) set_option(fd.get(), SOL_SOCKET, SO_NO_CHECK, 1);
  if (!whole || !set_usual(fd.get(), ipv4) || !bind_high(fd.get(), own, length) ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return {};
  const uint16_t port = ntohs(own.sin6_port);  // at the same place in both families
  return {base::GuardedFd(base::high(std::move(fd))), port, source};
}

// Whether the socket cuts such runs by itself, as it does from some on that are alike.
bool UdpSender::Cutting::fits(int fd, uint16_t segment_bytes) {
  constexpr unsigned kAlike = 16;
  alike = segment_bytes == last ? alike + 1 : 0;
  last = segment_bytes;
  if (bytes != segment_bytes && alike == kAlike && cut_into(fd, segment_bytes)) bytes = segment_bytes;
  return bytes == segment_bytes;
}

bool UdpSender::send(const Run& run) {
  Socket& socket = socket_for(run.route);
  if (socket.port == 0) {
    ++counters_.no_socket;
    return false;
  }
  const int fd = socket.fd.get_often();
  if (fd < 0) {
    ++counters_.closed;
    return false;
  }
  int error = try_to_send(socket, fd, run);
  // Some kernels refuse even lone packets by a socket that cuts where the device can't checksum.
  if ((error == EIO || error == EINVAL) && socket.cutting.bytes != 0 && cut_into(fd, 0)) {
    socket.cutting = {};
    error = try_to_send(socket, fd, run);
  }
  if (error != 0) count_failure(error);
  return error == 0;
}

// 0, or why not.
int UdpSender::try_to_send(Socket& socket, int fd, const Run& run) {
  if (run.packets() == 1) return send_each(socket, fd, run);
  Message message(run.route, socket.source);
  const bool by_itself = socket.cutting.fits(fd, run.segment_bytes);
  if (!by_itself) message.segment(run.segment_bytes);
  const int error = message.send(fd, run.bytes);
  // EIO: the device can't checksum; EINVAL: too long, too many, or an old kernel. One by one, then: a
  // recognised peer takes an ICRC made with any segment's ID for a plain datagram, too.
  if (error == EIO || error == EINVAL) {
    ++counters_.split_runs;
    return send_each(socket, fd, run);
  }
  if (error != 0) return error;
  ++counters_.segmented_runs;
  if (by_itself) ++counters_.cut_by_socket;
  counters_.packets += run.packets();
  counters_.bytes += run.bytes.size();
  return 0;
}

int UdpSender::send_each(const Socket& socket, int fd, const Run& run) {
  Message message(run.route, socket.source);
  if (socket.cutting.bytes != 0 && run.packet(0).size() > socket.cutting.bytes) message.segment(0);
  for (size_t i = 0; i < run.packets(); ++i) {
    const auto packet = run.packet(i);
    if (const int error = message.send(fd, packet); error != 0) return error;
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
