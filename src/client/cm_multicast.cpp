#include "client/cm_multicast.hpp"

#include <algorithm>

#include "client/host_tie.hpp"

namespace verbena::client {

base::Result<net::GroupMembership> join_group(const ipc::CmAddress& group, uint32_t interface) {
  const int socket = HostTie::instance()->roce_socket();
  if (socket < 0)
    return base::fail(ENODEV, "this process has no socket on the RoCEv2 port, so it can't join a group");
  net::Address address;
  std::ranges::copy(group.bytes, address.bytes.begin());
  return net::GroupMembership::join(socket, address, interface);
}

}  // namespace verbena::client
