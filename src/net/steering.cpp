#include "net/steering.hpp"

#include <linux/filter.h>

#include <fstream>
#include <sstream>
#include <string>

#include "net/socket_option.hpp"

namespace verbena::net {
namespace {

// The first byte of the destination QP in a BTH: its slot.
constexpr uint32_t kSlotOffset = 5;

// Options are best effort: a kernel that lacks one of these still steers.
base::Result<base::UniqueFd> open_socket() {
  // One dual-stack socket per slot serves IPv4 and IPv6; a host without IPv6 gets IPv4 ones.
  base::UniqueFd fd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set_option(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);  // RoCE senders leave the checksum 0
  } else {
    fd.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return base::fail_errno("creating a UDP socket");
  }
  set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);  // gives IP ID 0 (DESIGN 2.4)
  // On all, not only where a process receives: before a device's packets are merged the kernel asks a socket
  // of the group that it picks by hash, without the steering program.
  set_option(fd.get(), IPPROTO_UDP, UDP_GRO, 1);
  set_option(fd.get(), IPPROTO_IP, IP_MULTICAST_ALL, 0);
  set_option(fd.get(), IPPROTO_IP, IP_PKTINFO, 1);
  return fd;
}

base::Result<void> bind_port(int socket) {
  int domain = AF_INET;
  socklen_t length = sizeof domain;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(kRocePort);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(kRocePort);
  const int result = domain == AF_INET6 ? ::bind(socket, reinterpret_cast<sockaddr*>(&any6), sizeof any6)
                                        : ::bind(socket, reinterpret_cast<sockaddr*>(&any4), sizeof any4);
  if (result != 0) return base::fail_errno("binding UDP port " + std::to_string(kRocePort));
  return {};
}

base::Result<void> attach_steering(int socket) {
  // A runt, for which the load fails, and a slot without a socket go to the agent, which counts them.
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kSlotOffset),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, base::kSteeredSlots - 1, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, base::kAgentSlot.value),
      BPF_STMT(BPF_RET | BPF_A, 0),
  };
  const sock_fprog steering{static_cast<unsigned short>(std::size(program)), program};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steering, sizeof steering) != 0)
    return base::fail_errno("attaching the steering program");
  return {};
}

int64_t port_owner_in(const char* table) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the head
  while (std::getline(file, line)) {
    // "  sl  local_address rem_address st tx:rx tr:when retrnsmt uid ...", the port in hex behind the colon
    std::istringstream fields(line);
    std::string sl, local, remote, state, queues, timer, retransmit;
    int64_t uid = -1;
    if (!(fields >> sl >> local >> remote >> state >> queues >> timer >> retransmit >> uid)) continue;
    const size_t colon = local.rfind(':');
    if (colon == std::string::npos) continue;
    if (std::stoul(local.substr(colon + 1), nullptr, 16) == kRocePort) return uid;
  }
  return -1;
}

}  // namespace

base::Result<SteeredGroup> create_group() {
  // The probe binds without SO_REUSEPORT: it fails where any socket is on the port, a group of ours included.
  {
    auto probe = open_socket();
    if (!probe) return std::unexpected(probe.error());
    if (auto bound = bind_port(probe->get()); !bound) return std::unexpected(bound.error());
  }
  SteeredGroup group;
  group.reserve(base::kSteeredSlots);
  for (unsigned slot = 0; slot < base::kSteeredSlots; ++slot) {
    auto socket = open_socket();
    if (!socket) return std::unexpected(socket.error());
    set_option(socket->get(), SOL_SOCKET, SO_REUSEPORT, 1);
    if (auto bound = bind_port(socket->get()); !bound) return std::unexpected(bound.error());
    if (slot == 0)
      if (auto steered = attach_steering(socket->get()); !steered) return std::unexpected(steered.error());
    group.push_back(std::move(*socket));
  }
  return group;
}

void drain(int socket) {
  char byte = 0;
  // Bounded: a flood must not keep the agent here. A full receive buffer holds fewer packets than this.
  for (int i = 0; i < 100'000; ++i)
    if (::recv(socket, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) < 0 && errno == EAGAIN) return;
}

int64_t port_owner_uid() {
  const int64_t uid = port_owner_in("/proc/self/net/udp6");
  return uid >= 0 ? uid : port_owner_in("/proc/self/net/udp");
}

}  // namespace verbena::net
