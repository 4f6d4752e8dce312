#include "client/xrc_link.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "client/agent_launch.hpp"
#include "client/agent_link.hpp"
#include "ipc/rendezvous.hpp"
#include "ipc/xrc_messages.hpp"

namespace verbena::client {
namespace {

constexpr base::Duration kTimeout = base::seconds(10);
constexpr char kLost[] =
    "the keeper of this host's XRC domains has ended, and its target queue pairs with it: close the domain "
    "and "
    "open it anew";

// A child of fork() must not keep the connection open beyond its parent's end. One a process.
std::atomic<int> current_socket = -1;

void close_in_child() {
  if (const int fd = current_socket.exchange(-1); fd >= 0) ::close(fd);
}

base::Result<base::UniqueFd> connect_keeper(const std::string& name) {
  auto socket = ipc::connect_to(name);
  if (!socket) return socket;
  const auto peer = ipc::peer_of(socket->get());
  if (!peer) return std::unexpected(peer.error());
  if (peer->uid != ::geteuid())
    return base::fail(EACCES, fmt::format("the XRC keeper's name is held by a process of uid {}", peer->uid));
  return socket;
}

template <typename Message>
void put(Message& message, const ibv_qp_attr& attributes) {
  static_assert(sizeof attributes <= sizeof message.attributes);
  std::memcpy(message.attributes, &attributes, sizeof attributes);
}

}  // namespace

std::string keeper_name() {
  struct stat space {};
  (void)::stat("/proc/self/ns/pid", &space);
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : wanted_devices()) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return fmt::format("verbena.keeper.{}.{}.{:016x}", ::geteuid(), space.st_ino, hash);
}

XrcLink::XrcLink(base::UniqueFd socket) : socket_(std::move(socket)) {
  static const bool installed = ::pthread_atfork(nullptr, nullptr, &close_in_child) == 0;
  (void)installed;
  current_socket = watched_ = socket_.get();
}

XrcLink::~XrcLink() {
  int mine = socket_.get();
  current_socket.compare_exchange_strong(mine, -1);
}

base::Result<std::shared_ptr<XrcLink>> XrcLink::open() {
  const std::string name = keeper_name();
  const base::Instant deadline = base::now() + kTimeout;
  base::Instant launch_at{};
  for (;;) {
    auto socket = connect_keeper(name);
    if (socket) return std::shared_ptr<XrcLink>(new XrcLink(std::move(*socket)));
    const int code = socket.error().code;
    if (code != ECONNREFUSED && code != EAGAIN) return std::unexpected(socket.error());
    const base::Instant now = base::now();
    if (now >= deadline)
      return base::fail(ETIMEDOUT, "the keeper of XRC domains can't be reached: " + socket.error().sentence);
    if (code == ECONNREFUSED && now >= launch_at) {
      if (auto launched = launch_keeper(name); !launched) return std::unexpected(launched.error());
      launch_at = now + base::seconds(1);  // in case that one is killed right away
    }
    ipc::wait_idly(-1, now + base::milliseconds(1));
  }
}

// With the mutex held.
void XrcLink::lose() {
  if (lost_) return;
  lost_ = true;
  watched_ = -1;
  int mine = socket_.get();
  current_socket.compare_exchange_strong(mine, -1);
  socket_.reset();
  for (const auto& listener : listeners_)
    listener.events->push({IBV_EVENT_QP_FATAL, reinterpret_cast<uint64_t>(listener.element)});
}

template <typename Answer, typename Command>
base::Result<Answer> XrcLink::ask(const Command& command) {
  const std::lock_guard lock(mutex_);
  if (lost_ || socket_.get() < 0) return base::fail(EIO, kLost);
  const auto failed = [&](const base::Error& error) -> base::Result<Answer> {
    if (error.code != ETIMEDOUT && error.code != EPROTO) {
      lose();
      return base::fail(EIO, kLost);
    }
    lose();  // whose answer came next couldn't be told
    return std::unexpected(error);
  };
  if (auto sent = ipc::send(socket_.get(), command); !sent) return failed(sent.error());
  const base::Instant deadline = base::now() + kTimeout;
  for (;;) {
    auto reply = ipc::receive_until(socket_.get(), deadline);
    if (!reply) return failed(reply.error());
    if (reply->kind != ipc::Kind::kXrcEvent) return ipc::expect<Answer>(*reply);
    on_event(*reply);
  }
}

void XrcLink::on_event(const ipc::Message& message) {
  const auto event = message.as<ipc::XrcEvent>();
  if (!event) return;
  for (const auto& listener : listeners_)
    if (listener.qpn == event->qpn)
      listener.events->push({event->type, reinterpret_cast<uint64_t>(listener.element)});
}

base::Result<XrcLink::Domain> XrcLink::open_domain(int fd, int flags) {
  ipc::XrcOpenDomain wanted{.named = fd >= 0 ? 1u : 0u,
                            .create = (flags & O_CREAT) != 0 ? 1u : 0u,
                            .exclusive = (flags & O_EXCL) != 0 ? 1u : 0u};
  if (fd >= 0) {
    struct stat file {};
    if (::fstat(fd, &file) != 0)
      return base::fail(EBADF,
                        fmt::format("ibv_open_xrcd: {} is no open descriptor; -1 asks for a domain that "
                                    "no file names",
                                    fd));
    wanted.device = file.st_dev;
    wanted.inode = file.st_ino;
  }
  const auto opened = ask<ipc::XrcDomain>(wanted);
  if (!opened) return std::unexpected(opened.error());
  return Domain{opened->id, {static_cast<uint8_t>(opened->slot)}};
}

void XrcLink::close_domain(uint32_t id) { (void)ask<ipc::Done>(ipc::XrcCloseDomain{.id = id}); }

base::Result<void> XrcLink::serve(uint32_t domain, uint32_t srq) {
  const auto served = ask<ipc::Done>(ipc::XrcServe{.domain = domain, .srq = srq});
  if (!served) return std::unexpected(served.error());
  return {};
}

base::Result<XrcLink::Target> XrcLink::create_target(uint32_t domain, std::string_view device) {
  ipc::XrcCreate wanted{.domain = domain};
  ipc::set_text(wanted.device, device);
  const auto made = ask<ipc::XrcTarget>(wanted);
  if (!made) return std::unexpected(made.error());
  return Target{made->qpn, static_cast<ibv_qp_state>(made->state)};
}

base::Result<XrcLink::Target> XrcLink::open_target(uint32_t domain, uint32_t qpn) {
  const auto opened = ask<ipc::XrcTarget>(ipc::XrcOpen{.domain = domain, .qpn = qpn});
  if (!opened) return std::unexpected(opened.error());
  return Target{opened->qpn, static_cast<ibv_qp_state>(opened->state)};
}

void XrcLink::release_target(uint32_t qpn) { (void)ask<ipc::Done>(ipc::XrcRelease{.qpn = qpn}); }

base::Result<void> XrcLink::modify(uint32_t qpn, const ibv_qp_attr& wanted, int mask, ibv_qp_attr& after) {
  ipc::XrcModify command{.qpn = qpn, .mask = mask};
  put(command, wanted);
  const auto answer = ask<ipc::XrcAttributes>(command);
  if (!answer) return std::unexpected(answer.error());
  std::memcpy(&after, answer->attributes, sizeof after);
  if (answer->code != 0) return base::fail(answer->code, std::string(ipc::text(answer->sentence)));
  return {};
}

base::Result<void> XrcLink::query(uint32_t qpn, ibv_qp_attr& attributes) {
  const auto answer = ask<ipc::XrcAttributes>(ipc::XrcQuery{.qpn = qpn});
  if (!answer) return std::unexpected(answer.error());
  std::memcpy(&attributes, answer->attributes, sizeof attributes);
  return {};
}

void XrcLink::listen(uint32_t qpn, verbs::EventQueue& events, void* element) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back({qpn, &events, element});
}

void XrcLink::unlisten(const void* element) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const Listener& listener) { return listener.element == element; });
}

void XrcLink::read_events() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || lost_ || socket_.get() < 0) return;
  for (;;) {
    auto message = ipc::receive(socket_.get());
    if (!message) {
      if (message.error().code != EAGAIN) lose();
      return;
    }
    on_event(*message);
  }
}

}  // namespace verbena::client
