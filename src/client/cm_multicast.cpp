#include "client/cm_multicast.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "client/cm_route.hpp"
#include "client/host_tie.hpp"

namespace verbena::client {
namespace {

using Key = std::pair<std::array<uint8_t, 16>, uint32_t>;

std::mutex groups_mutex;
// How many share each group; leaked, since threads may outlive main.
std::map<Key, unsigned>& groups() {
  static auto* const made = new std::map<Key, unsigned>;
  return *made;
}

Key key_of(const ipc::CmAddress& group, uint32_t interface) {
  Key key{{}, interface};
  std::memcpy(key.first.data(), group.bytes, sizeof group.bytes);
  return key;
}

// MCAST_JOIN_GROUP takes both families on one socket, whichever that is of; an IPv6 socket has IPv4 groups by
// the IPv4 option.
bool set_membership(const ipc::CmAddress& group, uint32_t interface, bool join) {
  const int socket = HostTie::instance()->roce_socket();
  if (group.family == AF_INET) {
    ip_mreqn request{};
    std::memcpy(&request.imr_multiaddr, &group.bytes[12], 4);
    request.imr_ifindex = static_cast<int>(interface);
    return ::setsockopt(socket, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request,
                        sizeof request) == 0;
  }
  ipv6_mreq request{};
  std::memcpy(&request.ipv6mr_multiaddr, group.bytes, sizeof group.bytes);
  request.ipv6mr_interface = interface;
  return ::setsockopt(socket, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request,
                      sizeof request) == 0;
}

}  // namespace

base::Result<GroupJoin> GroupJoin::join(const ipc::CmAddress& group, uint32_t interface) {
  if (HostTie::instance()->roce_socket() < 0)
    return base::fail(ENODEV, "this process has no socket on the RoCEv2 port, so it can't join a group");
  const std::lock_guard lock(groups_mutex);
  unsigned& sharers = groups()[key_of(group, interface)];
  // One that the socket has already is as good (its owner before fork() may have left it behind).
  if (sharers == 0 && !set_membership(group, interface, true) && errno != EADDRINUSE)
    return base::fail_errno("joining the group " + to_text(group));
  ++sharers;
  GroupJoin made;
  made.group_ = group;
  made.interface_ = interface;
  made.joined_ = true;
  return made;
}

GroupJoin::GroupJoin(GroupJoin&& other) noexcept
    : group_(other.group_), interface_(other.interface_), joined_(std::exchange(other.joined_, false)) {}

GroupJoin& GroupJoin::operator=(GroupJoin&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(interface_, other.interface_);
  std::swap(joined_, other.joined_);
  return *this;
}

GroupJoin::~GroupJoin() {
  if (!joined_) return;
  const std::lock_guard lock(groups_mutex);
  const auto found = groups().find(key_of(group_, interface_));
  if (found == groups().end() || --found->second > 0) return;
  groups().erase(found);
  (void)set_membership(group_, interface_, false);
}

}  // namespace verbena::client
