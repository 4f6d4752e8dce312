// The connection to the agent's connection manager, made and, after the agent's death, made again with all
// that the process had declared.
#include <algorithm>

#include "base/explain.hpp"
#include "base/random.hpp"
#include "client/agent_link.hpp"
#include "client/cm_tie.hpp"

namespace verbena::client {
namespace {

constexpr base::Duration kOpenTime = base::seconds(10);

base::Result<void> say_on(int socket, const auto& command, std::span<const int> fds, base::Instant deadline,
                          const ipc::Waiting& waiting) {
  if (auto sent = ipc::send(socket, command, fds); !sent) return sent;
  const auto answer = ipc::receive_until(socket, deadline, waiting);
  if (!answer) return std::unexpected(answer.error());
  if (answer->kind == ipc::Kind::kRefused) {
    auto refused = ipc::expect<ipc::Done>(*answer);
    return std::unexpected(refused.error());
  }
  return {};
}

}  // namespace

int CmTie::socket() const {
  const std::lock_guard lock(mutex_);
  return socket_.get();
}

void CmTie::drop_socket() {
  const std::lock_guard lock(mutex_);
  socket_.reset();
}

base::Result<void> CmTie::ensure_open(const ipc::Waiting& waiting) {
  const int link = socket();
  if (link >= 0) {
    // The agent says nothing unasked: whatever can be read here is its end.
    const auto nothing = ipc::receive(link);
    if (!nothing && nothing.error().code == EAGAIN) return {};
    drop_socket();
  }
  return open(waiting);
}

base::Result<void> CmTie::open(const ipc::Waiting& waiting) {
  const base::Instant deadline = base::now() + kOpenTime;
  base::Duration pause = base::milliseconds(1);
  for (;;) {
    auto made = open_once(waiting, deadline);
    if (made) {
      const int link = made->get();
      {
        const std::lock_guard lock(mutex_);
        socket_ = base::GuardedFd(std::move(*made));
        renewal_ = false;
      }
      declare_all(link, waiting);
      return {};
    }
    const int code = made.error().code;
    // EAGAIN, ESTALE: this process hasn't come back to the new agent yet.
    const bool passing =
        code == EAGAIN || code == ESTALE || code == ECONNRESET || code == EPIPE || code == ENOTCONN;
    if (!passing || base::now() >= deadline) return std::unexpected(made.error());
    waiting(-1, base::now() + pause);
    pause = std::min<base::Duration>(pause * 2, base::milliseconds(20));
  }
}

base::Result<base::UniqueFd> CmTie::open_once(const ipc::Waiting& waiting, base::Instant deadline) {
  const LinkRequest request{.devices = wanted_devices(),
                            .patience = base::milliseconds(base::random_u64() % 40),
                            .waiting = waiting};
  auto link = connect_agent(request);
  if (!link) return std::unexpected(link.error());
  const auto claim = HostTie::instance()->claim();
  if (!claim) return base::fail(EIO, "this process has no slot, so it can't use RDMA CM");
  const ipc::CmOpen wanted{.own_slot = claim->slot, .own_epoch = claim->epoch};
  if (auto told = say_on(link->socket.get(), wanted, {}, deadline, waiting); !told)
    return std::unexpected(told.error());
  return std::move(link->socket);
}

void CmTie::declare_all(int socket, const ipc::Waiting& waiting) {
  std::map<uint32_t, std::shared_ptr<CmChannel>> channels;
  {
    const std::lock_guard lock(mutex_);
    channels = channels_;
  }
  // What the last agent left unread counts as known.
  for (const auto& [number, channel] : channels) channel->look([&](const auto& event) { note(event); });
  std::map<uint32_t, Declared> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  const base::Instant deadline = base::now() + kOpenTime;
  for (const auto& [number, channel] : channels) {
    const int end = channel->agent_end();
    if (end >= 0)
      (void)say_on(socket, ipc::CmChannel{.channel = number}, std::span(&end, 1), deadline, waiting);
  }
  for (const auto& [id, declared] : ids) declare(socket, id, declared, waiting);
}

void CmTie::declare(int socket, uint32_t id, const Declared& declared, const ipc::Waiting& waiting) {
  const base::Instant deadline = base::now() + kOpenTime;
  const auto say = [&](const auto& command) {
    if (auto told = say_on(socket, command, {}, deadline, waiting); !told)
      base::explain("after the host agent's restart: " + told.error().sentence);
  };
  const auto resumed = [&] {
    ipc::CmResume resume = declared.resume;
    resume.id = id;
    resume.channel = declared.channel->number();
    resume.space = declared.space;
    return resume;
  };
  if (declared.phase == Phase::kConnected || declared.phase == Phase::kAnswered) {
    change(id, [](Declared& kept) { kept.resumed = true; });
    say(resumed());
    if (declared.disconnecting) say(ipc::CmDisconnect{.id = id});
    return;
  }
  // Neither side's answer can be awaited any longer.
  if (declared.phase == Phase::kConnecting || declared.phase == Phase::kAccepted)
    leave({.event = ipc::CmEventKind::kUnreachable, .id = id, .status = -ETIMEDOUT});
  // The other end may take it for established, and has perhaps not heard that it is over: a DREQ tells it.
  const bool answered = declared.phase == Phase::kAccepted || declared.phase == Phase::kOver;
  if (answered && declared.resume.local_qpn != 0 && declared.resume.remote_comm_id != 0) {
    say(resumed());
    say(ipc::CmDestroy{.id = id});
  }
  if (id >= ipc::kFirstChild) return;
  say(ipc::CmCreate{.id = id, .channel = declared.channel->number(), .space = declared.space});
  if (declared.bound) say(declared.bind);
  if (declared.listens) say(declared.listen);
}

void CmTie::on_agent_changed(const ipc::Waiting& waiting) {
  renewal_ = true;
  // Who holds the lock looks at renewal_ after letting it go.
  const std::unique_lock lock(command_mutex_, std::try_to_lock);
  if (!lock || !renewal_.exchange(false)) return;
  {
    const std::lock_guard short_lock(mutex_);
    if (channels_.empty() && ids_.empty()) return;
  }
  if (auto open = ensure_open(waiting); !open) base::explain(open.error());
}

void CmTie::renew_if_stale() {
  if (renewal_) on_agent_changed(ipc::wait_idly);
}

void CmTie::on_slot_lost(const base::Error&) {
  // No queue pair of this process works any longer: to the program its device is gone.
  std::map<uint32_t, Declared> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const auto& [id, declared] : ids)
    declared.channel->leave({.event = ipc::CmEventKind::kDeviceRemoved, .id = id});
}

}  // namespace verbena::client
