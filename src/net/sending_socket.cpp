#include "net/sending_socket.hpp"

#include <linux/filter.h>

#include <cerrno>
#include <cstring>

#include "base/random.hpp"
#include "net/message_calls.hpp"
#include "net/socket_option.hpp"
#include "net/steering.hpp"

namespace verbena::net {
namespace {

// Nobody answers to these sockets' ports: what a stranger sends there must not fill memory.
void accept_nothing(int socket) {
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog nothing{1, program};
  ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &nothing, sizeof nothing);
}

// The kernel refuses a TTL of 0.
int granted_hop_limit(uint8_t hop_limit) { return hop_limit == 0 ? 1 : hop_limit; }

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

}  // namespace

// A message to where a route leads, with all that the kernel is to put into its headers and wouldn't by
// itself.
class SendingSocket::Message {
 public:
  Message(const Route& route, const Address& source, const Manner& habit) {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    const uint32_t interface = route.to.link_local() || route.to.multicast() ? route.interface : 0;
    const bool ipv4 = route.to.ipv4();
    if (ipv4) {
      to4_ = {.sin_family = AF_INET, .sin_port = htons(kRocePort)};
      std::memcpy(&to4_.sin_addr, &route.to.bytes[12], 4);
      header_.msg_name = &to4_;
      header_.msg_namelen = sizeof to4_;
      in_pktinfo told{.ipi_ifindex = static_cast<int>(interface)};
      std::memcpy(&told.ipi_spec_dst, &route.from.bytes[12], 4);
      if (interface != 0 || route.from != source) add(IPPROTO_IP, IP_PKTINFO, told);
    } else {
      to6_ = {.sin6_family = AF_INET6, .sin6_port = htons(kRocePort), .sin6_scope_id = interface};
      std::memcpy(&to6_.sin6_addr, route.to.bytes.data(), 16);
      header_.msg_name = &to6_;
      header_.msg_namelen = sizeof to6_;
      in6_pktinfo told{.ipi6_ifindex = interface};
      std::memcpy(&told.ipi6_addr, route.from.bytes.data(), 16);
      add(IPPROTO_IPV6, IPV6_PKTINFO, told);
    }
    const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
    if (route.traffic_class != habit.traffic_class)
      add(level, ipv4 ? IP_TOS : IPV6_TCLASS, int{route.traffic_class});
    if (route.hop_limit != habit.hop_limit)
      add(level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, granted_hop_limit(route.hop_limit));
  }
  Message(const Message&) = delete;  // it points into itself

  void cut_into(uint16_t bytes) { add(IPPROTO_UDP, UDP_SEGMENT, bytes); }

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

SendingSocket::SendingSocket(const Route& route, const Address& source, int buffer_bytes)
    : ipv4_(route.to.ipv4()), source_(source) {
  base::UniqueFd fd(::socket(ipv4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  accept_nothing(fd.get());
  set_option(fd.get(), SOL_SOCKET, SO_SNDBUF, buffer_bytes);
  sockaddr_in6 own{.sin6_family = static_cast<sa_family_t>(ipv4_ ? AF_INET : AF_INET6)};
  socklen_t length = ipv4_ ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (ipv4_) std::memcpy(&reinterpret_cast<sockaddr_in&>(own).sin_addr, &source.bytes[12], 4);
  // Without fragmentation, as the ID 0 needs.
  const bool whole = ipv4_ ? set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
                           : set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
                                 set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  // Foreign peers get what hardware sends: no UDP checksum. IPv6 forbids that, and who ignores it over IPv4
  // ignores it there, too.
  if (!route.recognised && ipv4_) set_option(fd.get(), SOL_SOCKET, SO_NO_CHECK, 1);
  if (!whole || !set_hop_limit(fd.get(), habit_.hop_limit) || !bind_high(fd.get(), own, length) ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return;
  port_ = ntohs(own.sin6_port);  // at the same place in both families
  fd_ = base::GuardedFd(base::high(std::move(fd)));
}

int SendingSocket::send(const Route& route, std::span<const std::byte> bytes, uint16_t segment_bytes) {
  const int fd = fd_.get_often();
  if (fd < 0) return EBADF;
  const bool lone = segment_bytes == 0;
  get_used_to(fd, {.traffic_class = route.traffic_class, .hop_limit = route.hop_limit}, segment_bytes);
  Message message(route, source_, habit_);
  // A lone packet is cut if it is longer; one that isn't is a plain datagram.
  if (lone ? cuts_into_ != 0 && bytes.size() > cuts_into_ : cuts_into_ != segment_bytes)
    message.cut_into(segment_bytes);
  return message.send(fd, bytes);
}

bool SendingSocket::stop_cutting() {
  const int fd = fd_.get_often();
  segments_ = {};
  return cuts_into_ != 0 && fd >= 0 && cut_into(fd, 0);
}

// What the kernel refuses messages go on to say.
void SendingSocket::get_used_to(int fd, const Manner& asked, uint16_t segment_bytes) {
  if (segment_bytes != 0 && segments_.often(segment_bytes) && segment_bytes != cuts_into_)
    (void)cut_into(fd, segment_bytes);
  if (!manners_.often(asked)) return;
  (void)(asked.traffic_class == habit_.traffic_class || set_traffic_class(fd, asked.traffic_class));
  (void)(asked.hop_limit == habit_.hop_limit || set_hop_limit(fd, asked.hop_limit));
}

bool SendingSocket::cut_into(int fd, uint16_t bytes) {
  const bool done = set_option(fd, IPPROTO_UDP, UDP_SEGMENT, bytes);
  if (done) cuts_into_ = bytes;
  return done;
}

bool SendingSocket::set_traffic_class(int fd, uint8_t traffic_class) {
  const bool done = ipv4_ ? set_option(fd, IPPROTO_IP, IP_TOS, traffic_class)
                          : set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
  if (done) habit_.traffic_class = traffic_class;
  return done;
}

bool SendingSocket::set_hop_limit(int fd, uint8_t hop_limit) {
  const int granted = granted_hop_limit(hop_limit);
  const bool done = ipv4_ ? set_option(fd, IPPROTO_IP, IP_TTL, granted) &&
                                set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, granted)
                          : set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, granted) &&
                                set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, granted);
  if (done) habit_.hop_limit = hop_limit;
  return done;
}

}  // namespace verbena::net
