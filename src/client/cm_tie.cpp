#include "client/cm_tie.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <utility>

#include "base/explain.hpp"

namespace verbena::client {
namespace {

// Constant-initialised and never destroyed, as HostTie's.
std::mutex instance_mutex;
std::shared_ptr<CmTie>* current_instance = nullptr;
std::atomic<const CmTie*> current_tie = nullptr;
bool fork_handlers_installed = false;

constexpr base::Duration kAnswerTime = base::seconds(10);

bool agent_gone(int code) { return code == ECONNRESET || code == EPIPE || code == ENOTCONN || code == EBADF; }

}  // namespace

std::shared_ptr<CmTie> CmTie::instance() {
  const std::lock_guard lock(instance_mutex);
  if (!fork_handlers_installed)
    fork_handlers_installed =
        ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child) == 0;
  if (current_instance == nullptr) {
    current_instance = new std::shared_ptr<CmTie>(new CmTie());
    current_tie.store(current_instance->get(), std::memory_order_release);
  }
  return *current_instance;
}

bool CmTie::current() const { return current_tie.load(std::memory_order_acquire) == this; }

void CmTie::before_fork() {
  instance_mutex.lock();
  if (current_instance != nullptr) (*current_instance)->mutex_.lock();
}

void CmTie::after_fork_in_parent() {
  if (current_instance != nullptr) (*current_instance)->mutex_.unlock();
  instance_mutex.unlock();
}

void CmTie::after_fork_in_child() {
  if (current_instance != nullptr) {
    (*current_instance)->abandon_in_child();
    (*current_instance)->mutex_.unlock();
    current_tie.store(nullptr, std::memory_order_release);
    current_instance = nullptr;  // leaked: what the program inherited refers to it
  }
  instance_mutex.unlock();
}

void CmTie::abandon_in_child() {
  // The agent knows the parent's end by these: copies in the child would hide it.
  socket_.reset();
  for (auto& [number, channel] : channels_) channel->abandon();
}

base::Result<void> CmTie::attach() {
  {
    const std::lock_guard lock(mutex_);
    if (attached_) return {};
  }
  const auto host = HostTie::instance();
  if (auto acquired = host->acquire(); !acquired) return acquired;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !std::exchange(attached_, true);
  }
  if (first)
    host->listen(this);
  else
    host->release();  // another thread was faster
  return {};
}

template <typename M>
base::Result<ipc::Message> CmTie::ask(const M& command, std::span<const int> fds) {
  base::Result<ipc::Message> answer = base::fail(ETIMEDOUT, "the host agent didn't answer");
  const base::Instant deadline = base::now() + kAnswerTime;
  {
    const std::lock_guard lock(command_mutex_);
    do {
      if (auto open = ensure_open(ipc::wait_idly); !open) return std::unexpected(open.error());
      const int link = socket();
      auto sent = ipc::send(link, command, fds);
      // Too many descriptors of this user are in flight: the agent is about to take some.
      while (!sent && sent.error().code == ETOOMANYREFS && base::now() < deadline) {
        ipc::wait_idly(-1, base::now() + base::milliseconds(2));
        sent = ipc::send(link, command, fds);
      }
      answer = sent ? ipc::receive_until(link, deadline)
                    : base::Result<ipc::Message>(std::unexpected(sent.error()));
      if (answer) break;
      drop_socket();  // an answer that comes late would be taken for the next command's
    } while (agent_gone(answer.error().code) && base::now() < deadline);
  }
  renew_if_stale();
  return answer;
}

template <typename M>
base::Result<void> CmTie::tell(const M& command, std::span<const int> fds) {
  const auto answer = ask(command, fds);
  if (!answer) return std::unexpected(answer.error());
  if (const auto done = ipc::expect<ipc::Done>(*answer); !done) return std::unexpected(done.error());
  return {};
}

base::Result<std::shared_ptr<CmChannel>> CmTie::open_channel() {
  if (auto attached = attach(); !attached) return std::unexpected(attached.error());
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_number_;
  }
  auto channel = CmChannel::create(number);
  if (!channel) return channel;
  const int end = (*channel)->agent_end();
  if (auto told = tell(ipc::CmChannel{.channel = number}, std::span(&end, 1)); !told)
    return std::unexpected(told.error());
  const std::lock_guard lock(mutex_);
  channels_[number] = *channel;
  return channel;
}

void CmTie::close_channel(const std::shared_ptr<CmChannel>& channel) {
  {
    const std::lock_guard lock(mutex_);
    channels_.erase(channel->number());
  }
  (void)tell(ipc::CmCloseChannel{.channel = channel->number()});
}

base::Result<uint32_t> CmTie::create(const std::shared_ptr<CmChannel>& channel, ipc::CmPortSpace space,
                                     void* owner) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_number_ % ipc::kFirstChild;
  }
  if (auto told = tell(ipc::CmCreate{.id = number, .channel = channel->number(), .space = space}); !told)
    return std::unexpected(told.error());
  const std::lock_guard lock(mutex_);
  ids_[number] = {.owner = owner, .channel = channel, .space = space};
  return number;
}

void CmTie::destroy(uint32_t id) {
  std::shared_ptr<CmChannel> channel;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(id);
    if (found == ids_.end()) return;
    channel = found->second.channel;
    ids_.erase(found);
  }
  (void)tell(ipc::CmDestroy{.id = id});
  (void)channel->extract(id);
}

base::Result<void> CmTie::migrate(uint32_t id, const std::shared_ptr<CmChannel>& channel) {
  if (auto told = tell(ipc::CmMigrate{.id = id, .channel = channel->number()}); !told) return told;
  std::shared_ptr<CmChannel> before;
  change(id, [&](Declared& declared) { before = std::exchange(declared.channel, channel); });
  if (before && before != channel) channel->leave_first(before->extract(id));
  return {};
}

base::Result<uint16_t> CmTie::bind(const ipc::CmBind& wanted) {
  const auto answer = ask(wanted);
  if (!answer) return std::unexpected(answer.error());
  const auto bound = ipc::expect<ipc::CmBound>(*answer);
  if (!bound) return std::unexpected(bound.error());
  change(wanted.id, [&](Declared& declared) {
    declared.bound = true;
    declared.bind = wanted;
    declared.bind.address.port = static_cast<uint16_t>(bound->port);
  });
  return static_cast<uint16_t>(bound->port);
}

base::Result<void> CmTie::listen(const ipc::CmListen& wanted) {
  if (auto told = tell(wanted); !told) return told;
  change(wanted.id, [&](Declared& declared) {
    declared.listens = true;
    declared.listen = wanted;
  });
  return {};
}

base::Result<void> CmTie::connect(const ipc::CmConnect& wanted) {
  // Before the answer: the peer's may be read by another thread first.
  change(wanted.id, [&](Declared& declared) {
    declared.phase = Phase::kConnecting;
    declared.resume.local = wanted.local;
    declared.resume.remote = wanted.remote;
    declared.resume.local_qpn = wanted.parameters.qpn;
  });
  auto told = tell(wanted);
  if (!told) change(wanted.id, [](Declared& declared) { declared.phase = Phase::kIdle; });
  return told;
}

base::Result<void> CmTie::accept(const ipc::CmAccept& wanted) {
  change(wanted.id, [&](Declared& declared) {
    declared.phase = Phase::kAccepted;
    declared.resume.local_qpn = wanted.parameters.qpn;
  });
  auto told = tell(wanted);
  if (!told)
    change(wanted.id, [](Declared& declared) {
      declared.phase = Phase::kOver;
      declared.resume.local_qpn = 0;  // it was never connected
    });
  return told;
}

base::Result<void> CmTie::establish(uint32_t id) {
  auto told = tell(ipc::CmEstablish{.id = id});
  change(id, [&](Declared& declared) {
    if (declared.resumed) told = {};  // the peer's repeated REP gets its RTU
    if (told) declared.phase = Phase::kConnected;
  });
  return told;
}

base::Result<void> CmTie::reject(const ipc::CmReject& wanted) {
  auto told = tell(wanted);
  change(wanted.id, [](Declared& declared) { declared.phase = Phase::kOver; });
  return told;
}

base::Result<void> CmTie::disconnect(uint32_t id) {
  // Before the agent is told: it may die between its answer and its DREQ.
  change(id, [](Declared& declared) { declared.disconnecting = true; });
  auto told = tell(ipc::CmDisconnect{.id = id});
  if (!told) change(id, [](Declared& declared) { declared.disconnecting = false; });
  return told;
}
base::Result<void> CmTie::notify(uint32_t id) { return tell(ipc::CmNotify{.id = id}); }

bool CmTie::adopt(const ipc::CmEvent& request, void* owner) {
  const std::lock_guard lock(mutex_);
  const auto listener = ids_.find(request.id);
  if (listener == ids_.end()) return false;
  Declared child{.owner = owner,
                 .channel = listener->second.channel,
                 .space = listener->second.space,
                 .phase = Phase::kIncoming};
  child.resume.local = request.local;
  child.resume.remote = request.remote;
  child.resume.local_comm_id = request.local_comm_id;
  child.resume.remote_comm_id = request.remote_comm_id;
  child.resume.remote_qpn = request.parameters.qpn;
  ids_[request.child] = std::move(child);
  return true;
}

void CmTie::note(const ipc::CmEvent& event) {
  change(event.id, [&](Declared& declared) { note_event(declared, event); });
}

void CmTie::note_event(Declared& declared, const ipc::CmEvent& event) {
  const bool datagrams =
      declared.space == ipc::CmPortSpace::kUdp || declared.space == ipc::CmPortSpace::kIpoib;
  switch (event.event) {
    case ipc::CmEventKind::kConnectResponse:
      if (declared.phase != Phase::kConnecting) return;
      declared.phase = Phase::kAnswered;
      declared.resume.local_comm_id = event.local_comm_id;
      declared.resume.remote_comm_id = event.remote_comm_id;
      declared.resume.remote_qpn = event.parameters.qpn;
      return;
    case ipc::CmEventKind::kEstablished:
      declared.phase = datagrams ? Phase::kOver : Phase::kConnected;
      return;
    case ipc::CmEventKind::kConnectError:
    case ipc::CmEventKind::kUnreachable:
    case ipc::CmEventKind::kRejected:
    case ipc::CmEventKind::kDisconnected:
    case ipc::CmEventKind::kTimewaitExit:
      declared.phase = Phase::kOver;
      return;
    default:
      return;
  }
}

void* CmTie::find(uint32_t id, void (*hold)(void* owner)) {
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(id);
  if (found == ids_.end()) return nullptr;
  hold(found->second.owner);
  return found->second.owner;
}

void CmTie::leave(const ipc::CmEvent& event) {
  std::shared_ptr<CmChannel> channel;
  change(event.id, [&](Declared& declared) { channel = declared.channel; });
  if (channel) channel->leave(event);
}

}  // namespace verbena::client
