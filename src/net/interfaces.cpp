#include "net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace verbena::net {
namespace {

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), std::min<size_t>(name.size(), IFNAMSIZ - 1));
  return request;
}

uint32_t mtu_of(int socket, const std::string& name) {
  ifreq request = request_for(name);
  return ::ioctl(socket, SIOCGIFMTU, &request) == 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

uint32_t speed_of(int socket, const std::string& name) {
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return 0;
  const uint32_t speed = ethtool_cmd_speed(&command);
  return speed == static_cast<uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

Address address_of(const sockaddr& from) {
  Address address;
  if (from.sa_family == AF_INET6) {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, 16);
  } else {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(address.bytes.data() + 12, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, 4);
  }
  return address;
}

void add(std::map<uint32_t, Interface>& found, const ifaddrs& entry) {
  const uint32_t index = ::if_nametoindex(entry.ifa_name);
  char name[IF_NAMESIZE];
  // The entry's own name may be an address label such as eth0:1; gone meanwhile is possible as well.
  if (index == 0 || ::if_indextoname(index, name) == nullptr) return;
  Interface& interface = found[index];
  interface.index = index;
  interface.name = name;
  interface.up = (entry.ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
  interface.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  if (entry.ifa_addr == nullptr) return;
  if (entry.ifa_addr->sa_family == AF_PACKET) {
    const auto& link = reinterpret_cast<const sockaddr_ll&>(*entry.ifa_addr);
    if (link.sll_halen == interface.mac.size()) std::memcpy(interface.mac.data(), link.sll_addr, 6);
  } else if (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6) {
    interface.addresses.push_back(address_of(*entry.ifa_addr));
  }
}

}  // namespace

base::Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* entries = nullptr;
  if (::getifaddrs(&entries) != 0) return base::fail_errno("listing network interfaces");
  std::map<uint32_t, Interface> found;
  for (const ifaddrs* entry = entries; entry != nullptr; entry = entry->ifa_next) add(found, *entry);
  ::freeifaddrs(entries);

  const base::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<Interface> interfaces;
  for (auto& [index, interface] : found) {
    interface.mtu = mtu_of(socket.get(), interface.name);
    interface.speed_mbps = speed_of(socket.get(), interface.name);
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

base::Result<base::UniqueFd> watch_interfaces() {
  base::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!fd) return base::fail_errno("creating a netlink socket");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("watching network interfaces");
  return fd;
}

void drain_changes(int watch) {
  char buffer[8192];
  // ENOBUFS means that notices were lost: the caller lists everything anew anyway.
  while (::recv(watch, buffer, sizeof buffer, MSG_DONTWAIT) >= 0 || errno == ENOBUFS) {
  }
}

}  // namespace verbena::net
