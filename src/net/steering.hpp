// The RoCEv2 port, shared by all processes of a host: a SO_REUSEPORT group of UDP sockets in slot order, and
// a classic BPF program by which the kernel hands each packet to the socket of its destination queue pair's
// slot.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::net {

inline constexpr uint16_t kRocePort = 4791;

// Socket i belongs to slot i; base::kSteeredSlots of them. UDP_GRO is on: a receive may hold several packets.
using SteeredGroup = std::vector<base::UniqueFd>;

// EADDRINUSE: the port has an owner (survivors of an earlier agent, another user's agent, or the kernel's
// rxe). A new group is only ever made on a free port: appended to an old one, its indices would be wrong
// (FACTS 4).
[[nodiscard]] base::Result<SteeredGroup> create_group();

// Throws away what waits on a slot's socket, so that its next owner doesn't get its last owner's packets.
void drain(int socket);

// Who has the port, by the kernel's table of UDP sockets; -1: nobody that it shows.
[[nodiscard]] int64_t port_owner_uid();

}  // namespace verbena::net
