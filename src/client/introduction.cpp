#include "client/introduction.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "arena/process_segments.hpp"
#include "arena/segment.hpp"
#include "base/random.hpp"
#include "client/agent_link.hpp"
#include "client/host_tie.hpp"
#include "ipc/channel.hpp"

namespace verbena::client {
namespace {

// How long processes may take to come back to an agent that was restarted.
constexpr base::Duration kReturn = base::seconds(2);
constexpr base::Duration kSoon = base::milliseconds(500);

base::Result<void> check_segment(int fd, arena::Sharing sharing, size_t size) {
  const auto sealed = arena::check_sealed(fd, sharing, size);
  if (!sealed) return std::unexpected(sealed.error());
  // We map all of it: past the end of a shorter one a read would be a SIGBUS.
  if (*sealed != size)
    return base::fail(EPROTO, fmt::format("a segment has {} bytes, not {}", *sealed, size));
  return {};
}

base::Result<Introduction> take(ipc::Message& reply) {
  const auto introduced = ipc::expect<ipc::Introduced>(reply);
  if (!introduced) return std::unexpected(introduced.error());
  const bool has_memory = introduced->has_memory != 0;
  if (reply.fds.size() != (has_memory ? 4u : 3u))
    return base::fail(EPROTO, "the host agent's introduction is malformed");
  Introduction made{.tables = std::move(reply.fds[0]),
                    .rings = std::move(reply.fds[1]),
                    .wake = std::move(reply.fds[2]),
                    .memory = has_memory ? std::move(reply.fds[3]) : base::UniqueFd(),
                    .pid = introduced->pid,
                    .start_ticks = introduced->start_ticks,
                    .epoch = introduced->epoch};
  auto good = check_segment(made.tables.get(), arena::Sharing::kOwnerWrites, arena::kTablesSize);
  if (good) good = check_segment(made.rings.get(), arena::Sharing::kPeersWrite, arena::kRingsSize);
  if (!good) return base::fail(EPROTO, "a peer's segments can't be used: " + good.error().sentence);
  return made;
}

// One try. EAGAIN, ESTALE: the agent knows less than it will in a moment. ECONNRESET, EPIPE: it is gone.
base::Result<Introduction> ask(base::Slot slot, base::Instant deadline, const LinkRequest& request) {
  auto link = connect_agent(request);
  if (!link) return std::unexpected(link.error());
  // Read anew each time: the slot may have got another epoch with another agent.
  const auto claim = HostTie::instance()->claim();
  if (!claim)
    return base::fail(ENOTCONN, "this process has no slot, so no other process can be introduced to it");
  const ipc::Introduce wanted{.own_slot = claim->slot, .own_epoch = claim->epoch, .slot = slot.value};
  if (auto sent = ipc::send(link->socket.get(), wanted); !sent) return std::unexpected(sent.error());
  auto reply = ipc::receive_until(link->socket.get(), deadline);
  if (!reply) return std::unexpected(reply.error());
  return take(*reply);
}

}  // namespace

base::Result<Introduction> introduce(base::Slot slot) {
  const base::Instant deadline = base::now() + LinkRequest{}.timeout;
  bool for_return = false;
  base::Instant return_deadline = deadline;
  base::Duration pause = base::milliseconds(1);
  for (;;) {
    // Of many survivors one starts an agent; see HostTie::reconnect.
    auto made = ask(slot, deadline,
                    {.devices = wanted_devices(), .patience = base::milliseconds(base::random_u64() % 40)});
    if (made) return made;
    const int code = made.error().code;
    const base::Instant now = base::now();
    if (code == EAGAIN || code == ESTALE) {
      if (!std::exchange(for_return, true)) return_deadline = now + kReturn;
      if (now >= return_deadline) return made;
    } else if (code == ECONNRESET || code == EPIPE) {
      for_return = false;  // everybody has to come back once more
    } else {
      return made;
    }
    if (now >= deadline) return made;
    ipc::wait_idly(-1, now + pause);
    pause = std::min<base::Duration>(pause * 2, base::milliseconds(20));
  }
}

base::Result<Introduction> introduce_soon(base::Slot slot) {
  return ask(slot, base::now() + kSoon,
             {.devices = wanted_devices(), .start = Start::kNever, .timeout = kSoon});
}

bool wake_peer(int wake) {
  const char token = 1;
  ssize_t sent = 0;
  do sent = ::send(wake, &token, sizeof token, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  // A full socket holds wakes enough.
  return sent >= 0 || errno == EAGAIN;
}

}  // namespace verbena::client
