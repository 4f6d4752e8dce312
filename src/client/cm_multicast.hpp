// IP multicast groups of RDMA CM's ids.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "ipc/cm_messages.hpp"
#include "net/multicast.hpp"

namespace verbena::client {

// On the slot's socket and an interface (its index). ENODEV: this process has no socket on the RoCEv2 port.
[[nodiscard]] base::Result<net::GroupMembership> join_group(const ipc::CmAddress& group, uint32_t interface);

}  // namespace verbena::client
