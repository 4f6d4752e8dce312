#include "net/multicast.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

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

// By the socket's inode, which its copies share and a child of fork() with a slot of its own doesn't.
using Key = std::tuple<ino_t, std::array<uint8_t, 16>, uint32_t>;

// Under it nothing else is locked, so fork() takes it, and the child finds it free and the map whole.
std::mutex shares_mutex;
// Leaked, since threads may outlive main.
std::map<Key, unsigned>& shares() {
  static auto* const made = new std::map<Key, unsigned>;
  return *made;
}

Key key_of(int socket, const Address& group, uint32_t interface) {
  struct stat st {};
  (void)::fstat(socket, &st);
  return {st.st_ino, group.bytes, interface};
}

}  // namespace

base::Result<GroupMembership> GroupMembership::join(int socket, const Address& group, uint32_t interface) {
  GroupMembership made;
  base::UniqueFd copy(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!copy) return base::fail_errno("joining the group " + to_text(group));
  made.socket_ = base::GuardedFd(std::move(copy));
  made.group_ = group;
  made.interface_ = interface;
  made.owner_ = ::getpid();
  static const bool installed [[maybe_unused]] =
      ::pthread_atfork([] { shares_mutex.lock(); }, [] { shares_mutex.unlock(); },
                       [] { shares_mutex.unlock(); }) == 0;
  const std::lock_guard lock(shares_mutex);
  unsigned& sharers = shares()[key_of(socket, group, interface)];
  // One that the socket has from an earlier owner of its slot is as good.
  if (const int error = sharers == 0 ? change(socket, group, interface, true) : 0;
      error != 0 && error != EADDRINUSE) {
    shares().erase(key_of(socket, group, interface));
    made.socket_.reset();
    if (error == ENOBUFS)
      return base::fail(ENOMEM,
                        fmt::format("the multicast group {} can't be joined: the kernel lets a socket "
                                    "join no more; {} is its limit",
                                    to_text(group),
                                    group.ipv4() ? "net.ipv4.igmp_max_memberships" : "net.core.optmem_max"));
    return base::fail(error, fmt::format("the multicast group {} can't be joined on interface {}: {}",
                                         to_text(group), interface, std::strerror(error)));
  }
  ++sharers;
  return made;
}

GroupMembership::GroupMembership(GroupMembership&& other) noexcept
    : socket_(std::move(other.socket_)),
      group_(other.group_),
      interface_(other.interface_),
      owner_(other.owner_) {}

GroupMembership& GroupMembership::operator=(GroupMembership&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(group_, other.group_);
  std::swap(interface_, other.interface_);
  std::swap(owner_, other.owner_);
  return *this;
}

GroupMembership::~GroupMembership() {
  const int socket = socket_.get();
  if (socket < 0 || owner_ != ::getpid()) return;
  const std::lock_guard lock(shares_mutex);
  const auto found = shares().find(key_of(socket, group_, interface_));
  if (found == shares().end() || --found->second > 0) return;
  shares().erase(found);
  (void)change(socket, group_, interface_, false);
}

}  // namespace verbena::net
