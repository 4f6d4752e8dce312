#include "net/multicast.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace verbena::net {
namespace {

// 0, or why not.
int change(int socket, const Address& group, uint32_t interface, bool joins) {
  int result = 0;
  if (group.ipv4()) {
    ip_mreqn request{};
    std::memcpy(&request.imr_multiaddr, group.bytes.data() + 12, sizeof request.imr_multiaddr);
    request.imr_ifindex = static_cast<int>(interface);
    result = ::setsockopt(socket, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request,
                          sizeof request);
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.bytes.data(), sizeof request.ipv6mr_multiaddr);
    request.ipv6mr_interface = interface;
    result = ::setsockopt(socket, IPPROTO_IPV6, joins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request,
                          sizeof request);
  }
  return result == 0 ? 0 : errno;
}

}  // namespace

base::Result<void> join(int socket, const Address& group, uint32_t interface) {
  const int error = change(socket, group, interface, true);
  if (error == 0 || error == EADDRINUSE) return {};
  return base::fail(error, fmt::format("the multicast group {} can't be joined on interface {}: {}",
                                       to_text(group), interface, std::strerror(error)));
}

void leave(int socket, const Address& group, uint32_t interface) {
  (void)change(socket, group, interface, false);
}

}  // namespace verbena::net
