#include "ipc/rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "ipc/process_id.hpp"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace verbena::ipc {
namespace {

// Deep enough for a few hundred processes that start at the same moment.
constexpr int kBacklog = 512;

socklen_t fill_address(sockaddr_un& address, const std::string& name) {
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // names are ours and short
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

base::Result<base::UniqueFd> make_socket() {
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return base::fail_errno("creating a control socket");
  return fd;
}

}  // namespace

std::string user_agent_name(uid_t uid) { return "verbena.agent.user." + std::to_string(uid); }
std::string user_launch_name(uid_t uid) { return user_agent_name(uid) + ".launch"; }
std::string system_agent_name() { return "verbena.agent.system"; }
std::string system_supervisor_name() { return "verbena.agent.system.supervisor"; }
std::string port_owner_name() { return "verbena.port"; }

base::Result<base::UniqueFd> listen_at(const std::string& name) {
  auto fd = make_socket();
  if (!fd) return fd;
  sockaddr_un address{};
  const socklen_t length = fill_address(address, name);
  if (::bind(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return base::fail_errno("taking the name " + name);
  if (::listen(fd->get(), kBacklog) != 0) return base::fail_errno("listening at " + name);
  return fd;
}

base::Result<base::UniqueFd> connect_to(const std::string& name) {
  auto fd = make_socket();
  if (!fd) return fd;
  sockaddr_un address{};
  const socklen_t length = fill_address(address, name);
  // Non-blocking, so EAGAIN when the listener's backlog is full: the caller retries until its own deadline.
  if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return base::fail_errno("connecting to " + name);
  return fd;
}

base::Result<PeerCredentials> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return base::fail_errno("asking who the peer is");
  return PeerCredentials{credentials.pid, credentials.uid};
}

base::UniqueFd pidfd_of_peer(int socket) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) return base::UniqueFd(pidfd);
  // Kernels before 6.5: by number. Had the number gone to another process meanwhile, our peer would be dead
  // and its end of the connection closed.
  const auto peer = peer_of(socket);
  if (!peer || peer->pid <= 0) return {};
  base::UniqueFd opened = open_pidfd(peer->pid);
  pollfd state{socket, POLLRDHUP, 0};
  const bool gone = ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
  return gone ? base::UniqueFd() : std::move(opened);
}

}  // namespace verbena::ipc
