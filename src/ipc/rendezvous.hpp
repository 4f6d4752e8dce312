// Where agents and clients meet: abstract Unix sockets, which a network namespace scopes and the kernel
// forgets with their last descriptor. Binding the name is the lock that lets one agent start.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::ipc {

// The agent of one user; the agent that root runs for everybody, and its supervisor, which is there even
// while the agent is being restarted; the agent that has the RoCEv2 port.
[[nodiscard]] std::string user_agent_name(uid_t uid);
// Held by a process while it starts that agent, so that hundreds of survivors start one and not hundreds.
[[nodiscard]] std::string user_launch_name(uid_t uid);
[[nodiscard]] std::string system_agent_name();
[[nodiscard]] std::string system_supervisor_name();
[[nodiscard]] std::string port_owner_name();

// EADDRINUSE: somebody else has the name.
[[nodiscard]] base::Result<base::UniqueFd> listen_at(const std::string& name);
// ECONNREFUSED: nobody listens there.
[[nodiscard]] base::Result<base::UniqueFd> connect_to(const std::string& name);

struct PeerCredentials {
  pid_t pid = 0;  // 0: in a pid namespace that we don't see
  uid_t uid = 0;
};
[[nodiscard]] base::Result<PeerCredentials> peer_of(int socket);
// A pidfd of the process that connected; empty: it is gone.
[[nodiscard]] base::UniqueFd pidfd_of_peer(int socket);

}  // namespace verbena::ipc
