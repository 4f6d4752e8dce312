#include "client/agent_link.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "client/agent_launch.hpp"
#include "ipc/device_spec.hpp"
#include "ipc/rendezvous.hpp"

namespace verbena::client {
namespace {

// Anybody may take an abstract name: an agent counts only if the right user runs it.
base::Result<base::UniqueFd> connect_checked(const std::string& name, uid_t uid) {
  auto socket = ipc::connect_to(name);
  if (!socket) return socket;
  const auto peer = ipc::peer_of(socket->get());
  if (!peer) return std::unexpected(peer.error());
  if (peer->uid != uid)
    return base::fail(
        EACCES, fmt::format("the host agent's name '{}' is held by a process of uid {}", name, peer->uid));
  return socket;
}

base::Result<base::UniqueFd> find_agent() {
  // Where root runs one for everybody, that one; it alone can give several users the port.
  auto socket = connect_checked(ipc::system_agent_name(), 0);
  if (socket || socket.error().code == EAGAIN) return socket;
  // Killed, it is back in a moment; an agent of our own meanwhile would be without the port. The supervisor
  // never accepts, so its queue may be full: that is an answer, too.
  const auto supervisor = connect_checked(ipc::system_supervisor_name(), 0);
  if (supervisor || supervisor.error().code == EAGAIN)
    return base::fail(EAGAIN, "the system agent is being restarted");
  return connect_checked(ipc::user_agent_name(::geteuid()), ::geteuid());
}

base::Result<AgentLink> greet(base::UniqueFd socket, const LinkRequest& request, base::Instant deadline) {
  ipc::Hello hello{.survivor = request.park >= 0 ? 1u : 0u};
  ipc::set_text(hello.spec, request.devices);
  const auto fds = std::span(&request.park, request.park >= 0 ? 1 : 0);
  auto sent = ipc::send(socket.get(), hello, fds);
  // Too many descriptors of this user are in flight: the agent can still fetch the park by itself.
  if (!sent && sent.error().code == ETOOMANYREFS) sent = ipc::send(socket.get(), hello);
  // Even if it couldn't be sent: an agent that refused us at once has said why and hung up.
  auto reply = ipc::receive_until(socket.get(), deadline, request.waiting);
  if (!reply) return std::unexpected(sent ? reply.error() : sent.error());
  const auto welcome = ipc::expect<ipc::Welcome>(*reply);
  if (!welcome) return std::unexpected(welcome.error());
  if (reply->fds.size() != 1 || welcome->view >= arena::kMaxViews)
    return base::fail(EPROTO, "the host agent's welcome is malformed");
  auto registry = arena::Registry::open(reply->fds[0].get(), arena::Access::kRead);
  if (!registry) return std::unexpected(registry.error());
  return AgentLink{std::move(socket), std::move(reply->fds[0]), std::move(*registry), *welcome};
}

// Errors by which an agent that leaves, dies or is overrun shows itself: trying again helps.
bool passing(int code) { return code == ECONNRESET || code == EPIPE || code == EAGAIN || code == ENOTCONN; }

}  // namespace

std::string wanted_devices() {
  const char* given = ::secure_getenv(ipc::kDevicesVariable);
  return given != nullptr && *given != '\0' ? given : ipc::format_specs(ipc::default_specs());
}

base::Result<AgentLink> connect_agent(const LinkRequest& request) {
  if (request.devices.size() >= sizeof ipc::Hello{}.spec)
    return base::fail(EINVAL, fmt::format("{} is longer than {} characters", ipc::kDevicesVariable,
                                          sizeof ipc::Hello{}.spec - 1));
  const base::Instant begin = base::now();
  const base::Instant deadline = begin + request.timeout;
  base::Instant launch_at = begin + request.patience;
  base::UniqueFd launching;  // while held, nobody else starts an agent
  bool other_had_its_time =
      false;  // it may have been stopped or killed in the middle: then we start one, too
  base::Duration pause = base::milliseconds(1);
  for (;;) {
    auto socket = find_agent();
    base::Error error;
    if (socket) {
      auto link = greet(std::move(*socket), request, deadline);
      if (link || !passing(link.error().code)) return link;
      error = link.error();
    } else {
      error = socket.error();
      if (error.code == ECONNREFUSED) {
        if (request.start == Start::kNever) return base::fail(ECONNREFUSED, "no host agent runs");
        if (base::now() >= launch_at) {
          if (!launching)
            if (auto name = ipc::listen_at(ipc::user_launch_name(::geteuid()))) launching = std::move(*name);
          if (launching || other_had_its_time)
            if (auto launched = launch_agent(); !launched) return std::unexpected(launched.error());
          other_had_its_time = true;
          launch_at = base::now() + base::seconds(1);  // in case that one is killed right away
        }
      } else if (!passing(error.code)) {
        return std::unexpected(error);
      }
    }
    if (base::now() >= deadline)
      return base::fail(ETIMEDOUT, "the host agent can't be reached: " + error.sentence);
    request.waiting(-1, base::now() + pause);
    pause = std::min<base::Duration>(pause * 2, base::milliseconds(20));
  }
}

}  // namespace verbena::client
