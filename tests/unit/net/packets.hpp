// Packets with nothing in them but what steering looks at, and where they arrive.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "net/steering.hpp"
#include "support/process.hpp"

namespace verbena::net {

inline base::UniqueFd udp_socket(int family) {
  return base::UniqueFd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

inline int bind_to(int socket, int family, uint16_t port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  return family == AF_INET6 ? ::bind(socket, reinterpret_cast<sockaddr*>(&any6), sizeof any6)
                            : ::bind(socket, reinterpret_cast<sockaddr*>(&any4), sizeof any4);
}

// Connected to the RoCEv2 port of 127.0.0.1 or ::1.
inline base::UniqueFd connect_to_port(int family) {
  base::UniqueFd fd = udp_socket(family);
  sockaddr_in6 loop6{};
  loop6.sin6_family = AF_INET6;
  loop6.sin6_port = htons(kRocePort);
  loop6.sin6_addr = in6addr_loopback;
  sockaddr_in loop4{};
  loop4.sin_family = AF_INET;
  loop4.sin_port = htons(kRocePort);
  loop4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(0, family == AF_INET6 ? ::connect(fd.get(), reinterpret_cast<sockaddr*>(&loop6), sizeof loop6)
                                  : ::connect(fd.get(), reinterpret_cast<sockaddr*>(&loop4), sizeof loop4));
  return fd;
}

// A BTH whose destination queue pair is `index` of `slot`.
inline std::string packet_for(unsigned slot, unsigned index = 0x1234) {
  std::string packet(12, '\0');
  packet[5] = static_cast<char>(slot);
  packet[6] = static_cast<char>(index >> 8);
  packet[7] = static_cast<char>(index);
  return packet + "payload";
}

inline void send_packet(int socket, const std::string& packet) {
  ASSERT_EQ(static_cast<ssize_t>(packet.size()), ::send(socket, packet.data(), packet.size(), 0));
}

// What waits at each socket, by its number; waits until `count` packets are there, and finds any beyond.
template <typename Sockets>
std::map<size_t, std::vector<std::string>> arrivals(const Sockets& sockets, size_t count) {
  std::map<size_t, std::vector<std::string>> arrived;
  size_t found = 0;
  const auto look = [&] {
    for (size_t i = 0; i < sockets.size(); ++i) {
      char buffer[256];
      for (ssize_t size = 0; (size = ::recv(sockets[i].get(), buffer, sizeof buffer, MSG_DONTWAIT)) >= 0;
           ++found)
        arrived[i].emplace_back(buffer, static_cast<size_t>(size));
    }
    return found >= count;
  };
  EXPECT_TRUE(support::eventually(look, support::Wait(2'000)))
      << found << " of " << count << " packets arrived";
  look();
  EXPECT_EQ(count, found);
  return arrived;
}

// One packet to each slot over each family: each must arrive at its own slot's socket and nowhere else.
template <typename Sockets>
void expect_steered(const Sockets& sockets) {
  for (const int family : {AF_INET, AF_INET6}) {
    const auto sender = connect_to_port(family);
    std::map<size_t, std::vector<std::string>> expected;
    for (unsigned slot = 0; slot < base::kSteeredSlots; ++slot) {
      expected[slot] = {packet_for(slot)};
      ASSERT_NO_FATAL_FAILURE(send_packet(sender.get(), packet_for(slot)));
    }
    EXPECT_EQ(expected, arrivals(sockets, base::kSteeredSlots)) << (family == AF_INET ? "IPv4" : "IPv6");
  }
}

inline size_t open_descriptors() {
  std::filesystem::directory_iterator directory("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(directory), end(directory)));
}

}  // namespace verbena::net
