#include "client/cm_route.hpp"

#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/unique_fd.hpp"
#include "net/address.hpp"

namespace verbena::client {
namespace {

net::Address plain(const ipc::CmAddress& address) {
  net::Address made;
  std::ranges::copy(address.bytes, made.bytes.begin());
  return made;
}

socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

}  // namespace

base::Result<ipc::CmAddress> cm_address(const sockaddr* address) {
  if (address == nullptr) return base::fail(EINVAL, "no address is given");
  ipc::CmAddress made;
  made.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    made.port = ntohs(in.sin_port);
    if (in.sin_addr.s_addr != htonl(INADDR_ANY)) {
      made.bytes[10] = made.bytes[11] = 0xff;
      std::memcpy(&made.bytes[12], &in.sin_addr, 4);
    }
    return made;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    made.port = ntohs(in.sin6_port);
    std::memcpy(made.bytes, &in.sin6_addr, sizeof made.bytes);
    if (plain(made).link_local()) made.interface = in.sin6_scope_id;
    return made;
  }
  return base::fail(EAFNOSUPPORT,
                    fmt::format("addresses of family {} aren't known to RDMA CM here: IPv4 ({}) "
                                "and IPv6 ({}) are",
                                address->sa_family, AF_INET, AF_INET6));
}

sockaddr_storage socket_address(const ipc::CmAddress& address) {
  sockaddr_storage made{};
  if (address.family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, &address.bytes[12], 4);
    std::memcpy(&made, &in, sizeof in);
  } else if (address.family == AF_INET6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    in.sin6_scope_id = address.interface;
    std::memcpy(&in.sin6_addr, address.bytes, sizeof address.bytes);
    std::memcpy(&made, &in, sizeof in);
  }
  return made;
}

bool is_wildcard(const ipc::CmAddress& address) {
  return std::ranges::all_of(address.bytes, [](uint8_t byte) { return byte == 0; });
}

std::string to_text(const ipc::CmAddress& address) {
  if (is_wildcard(address) && address.family == AF_INET) return fmt::format("0.0.0.0:{}", address.port);
  const auto ip = net::to_text(plain(address));
  if (plain(address).ipv4()) return fmt::format("{}:{}", ip, address.port);
  return fmt::format("[{}]:{}", ip, address.port);
}

base::Result<ipc::CmAddress> source_for(const ipc::CmAddress& destination) {
  const base::UniqueFd socket(::socket(destination.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return base::fail_errno("opening a socket to ask for a route");
  ipc::CmAddress target = destination;
  if (target.port == 0) target.port = 1;  // a datagram socket asks for some port
  const auto there = socket_address(target);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), length_of(there)) != 0)
    return base::fail_errno("there is no route to " + to_text(destination));
  sockaddr_storage here{};
  socklen_t length = sizeof here;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &length) != 0)
    return base::fail_errno("asking for the route to " + to_text(destination));
  auto source = cm_address(reinterpret_cast<const sockaddr*>(&here));
  if (source) source->port = 0;
  return source;
}

base::Result<void> check_local(const ipc::CmAddress& address) {
  const base::UniqueFd socket(::socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return base::fail_errno("opening a socket to look at an address");
  ipc::CmAddress any_port = address;
  any_port.port = 0;
  const auto here = socket_address(any_port);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), length_of(here)) != 0)
    return base::fail_errno(to_text(address) + " can't be bound to");
  return {};
}

std::optional<GidPlace> find_gid(const arena::DeviceRecord& device, const ipc::CmAddress& address) {
  for (unsigned p = 0; p < std::min<unsigned>(device.port_count, arena::kMaxPorts); ++p) {
    const auto& port = device.ports[p];
    for (unsigned g = 0; g < arena::kMaxGids; ++g) {
      const auto& gid = port.gids[g];
      if (gid.used == 0 || std::memcmp(gid.raw.data(), address.bytes, gid.raw.size()) != 0) continue;
      if (address.interface != 0 && gid.ifindex != address.interface) continue;
      return GidPlace{.port_num = static_cast<uint8_t>(p + 1),
                      .index = static_cast<uint16_t>(g),
                      .mtu = port.active_mtu,
                      .interface = gid.ifindex};
    }
  }
  return std::nullopt;
}

}  // namespace verbena::client
