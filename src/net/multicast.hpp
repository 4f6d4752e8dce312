// Groups that a socket listens to.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/address.hpp"

namespace verbena::net {

// A share in a socket's membership, on one interface: the first joins, the last leaves. RDMA CM's ids and
// attached queue pairs share the slot's socket, whose copies count as one. Any thread.
class GroupMembership {
 public:
  GroupMembership() = default;
  [[nodiscard]] static base::Result<GroupMembership> join(int socket, const Address& group,
                                                          uint32_t interface);
  GroupMembership(GroupMembership&& other) noexcept;
  GroupMembership& operator=(GroupMembership&& other) noexcept;
  ~GroupMembership();

 private:
  base::GuardedFd socket_;  // a copy; empty: no share
  Address group_;
  uint32_t interface_ = 0;
  pid_t owner_ = 0;  // a child of fork() has the copy, and no share
};

}  // namespace verbena::net
