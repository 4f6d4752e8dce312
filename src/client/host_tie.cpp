#include "client/host_tie.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "arena/process_segments.hpp"
#include "base/explain.hpp"
#include "base/random.hpp"
#include "ipc/channel.hpp"

namespace verbena::client {
namespace {

// Programs open and close devices in a row while they look around: the slot stays a moment longer.
constexpr base::Duration kLinger = base::seconds(1);

// Constant-initialised and never destroyed (the pointer is leaked on purpose), see HostTie::instance.
std::mutex instance_mutex;
std::shared_ptr<HostTie>* current_instance = nullptr;
std::atomic<const HostTie*> current_tie = nullptr;  // the same, for those who only compare
bool fork_handlers_installed = false;

}  // namespace

std::shared_ptr<HostTie> HostTie::instance() {
  const std::lock_guard lock(instance_mutex);
  if (!fork_handlers_installed)
    fork_handlers_installed =
        ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child) == 0;
  if (current_instance == nullptr) {
    current_instance = new std::shared_ptr<HostTie>(new HostTie());
    current_tie.store(current_instance->get(), std::memory_order_release);
  }
  return *current_instance;
}

// The locks are taken around fork() so that the child finds whole state to take leave of.
void HostTie::before_fork() {
  instance_mutex.lock();
  if (current_instance != nullptr) (*current_instance)->mutex_.lock();
}

void HostTie::after_fork_in_parent() {
  if (current_instance != nullptr) (*current_instance)->mutex_.unlock();
  instance_mutex.unlock();
}

void HostTie::after_fork_in_child() {
  if (current_instance != nullptr) {
    HostTie& parents = **current_instance;
    parents.abandon_in_child();
    parents.mutex_.unlock();
    current_tie.store(nullptr, std::memory_order_release);
    current_instance = nullptr;  // what the program inherited keeps the old one alive, and is stale
  }
  instance_mutex.unlock();
}

void HostTie::abandon_in_child() {
  // The mappings aren't inherited (MADV_DONTFORK); the descriptors are, and must not outlive the parent here.
  tables_.forget();
  rings_.forget();
  tables_fd_.reset();
  rings_fd_.reset();
  wake_.reset();
  woken_.reset();
  connection_.socket.reset();
  connection_.registry_fd.reset();
  connection_.park.reset();
  connection_.roce_socket.reset();
  connection_.registry.forget();
  attached_ = false;
}

bool HostTie::current() const {
  // Without a lock: callers hold locks of their own, which fork() takes in another order.
  return current_tie.load(std::memory_order_acquire) == this;
}

base::Result<void> HostTie::acquire() {
  const std::lock_guard attaching(attach_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (attached_ && !lost_) {
      ++users_;
      return {};
    }
    if (lost_ && users_ > 0)
      return base::fail(
          EIO, "this process lost its slot while no host agent ran; close its devices and open them anew");
  }
  if (auto attached = attach_first(); !attached) return attached;
  const std::lock_guard lock(mutex_);
  users_ = 1;
  return {};
}

void HostTie::release() {
  if (!current()) return;
  const std::lock_guard lock(mutex_);
  if (users_ > 0) --users_;
  if (users_ > 0) return;
  idle_since_ = base::now();
  wake();
}

void HostTie::listen(DeviceListener* listener) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_.push_back(listener);
}

void HostTie::unlisten(DeviceListener* listener) {
  if (!current()) return;
  const std::lock_guard lock(listeners_mutex_);
  std::erase(listeners_, listener);
}

base::Slot HostTie::slot() const {
  const std::lock_guard lock(mutex_);
  return {static_cast<uint8_t>(connection_.claim.slot)};
}

std::shared_ptr<const arena::DeviceTable> HostTie::devices() const {
  static const auto kNone = std::make_shared<const arena::DeviceTable>();
  const std::lock_guard lock(mutex_);
  return devices_ ? devices_ : kNone;
}

void HostTie::drop_attachment() {
  connection_ = {};
  attached_ = false;
  lost_ = false;
  tables_ = {};
  rings_ = {};
  tables_fd_.reset();
  rings_fd_.reset();
  devices_.reset();
}

int HostTie::roce_socket() const {
  const std::lock_guard lock(mutex_);
  return connection_.roce_socket.get();
}

base::Result<void> HostTie::attach_first() {
  auto tables = arena::create_sealed(arena::kTablesName, arena::kTablesSize, arena::Sharing::kOwnerWrites);
  if (!tables) return std::unexpected(tables.error());
  auto rings = arena::create_sealed(arena::kRingsName, arena::kRingsSize, arena::Sharing::kPeersWrite);
  if (!rings) return std::unexpected(rings.error());
  auto* head = reinterpret_cast<arena::TablesHead*>(tables->mapping.data());
  head->magic = arena::kTablesMagic;
  head->layout = arena::kTablesLayout;
  {
    const std::lock_guard lock(mutex_);
    tables_ = std::move(tables->mapping);
    rings_ = std::move(rings->mapping);
    tables_fd_ = base::GuardedFd(std::move(tables->fd));
    rings_fd_ = base::GuardedFd(std::move(rings->fd));
  }
  auto started = start_helper();
  auto connection =
      started ? connect(nullptr, {}) : base::Result<Connection>(std::unexpected(started.error()));
  auto devices = connection ? connection->registry.read_view(connection->view) : nullptr;
  const std::lock_guard lock(mutex_);
  if (!devices) {
    drop_attachment();
    if (!connection) return std::unexpected(connection.error());
    return base::fail(EIO, "the host agent shows no devices");
  }
  head->slot.store(connection->claim.slot);
  connection_ = std::move(*connection);
  devices_ = std::move(devices);
  attached_ = true;
  lost_ = false;
  wake();  // the helper thread has something to look after
  return {};
}

base::Result<HostTie::Connection> HostTie::connect(const Claim* resume, base::Duration patience) {
  LinkRequest request{.devices = wanted_devices(), .patience = patience};
  int descriptors[2] = {-1, -1};
  {
    const std::lock_guard lock(mutex_);
    if (resume != nullptr) request.park = connection_.park.get();
    descriptors[0] = tables_fd_.get();
    descriptors[1] = rings_fd_.get();
  }
  if (descriptors[0] < 0 || descriptors[1] < 0)
    return base::fail(EBADF,
                      "the program closed descriptors of Verbena's, so it can't attach to the host agent");

  ipc::Attach wanted{.tables = descriptors[0], .rings = descriptors[1]};
  if (resume != nullptr) {
    wanted.resume = 1;
    wanted.slot = resume->slot;
    wanted.epoch = resume->epoch;
  }
  const base::Instant deadline = base::now() + request.timeout;
  for (;;) {
    auto link = connect_agent(request);
    if (!link) return std::unexpected(link.error());
    base::Error error;
    auto sent = ipc::send(link->socket.get(), wanted, descriptors);
    if (!sent && sent.error().code == ETOOMANYREFS) sent = ipc::send(link->socket.get(), wanted);
    if (!sent) {
      error = sent.error();
    } else {
      auto reply = ipc::receive_until(link->socket.get(), deadline);
      if (reply) {
        const auto attached = ipc::expect<ipc::Attached>(*reply);
        if (!attached) return std::unexpected(attached.error());
        if (reply->fds.size() != attached->has_park + attached->has_socket ||
            attached->slot > base::kLastProcessSlot)
          return base::fail(EPROTO, "the host agent's answer is malformed");
        Connection made;
        made.socket = base::GuardedFd(std::move(link->socket));
        made.registry_fd = base::GuardedFd(std::move(link->registry_fd));
        made.registry = std::move(link->registry);
        made.view = link->welcome.view;
        made.claim = {attached->slot, attached->epoch};
        if (attached->has_park != 0) made.park = base::GuardedFd(std::move(reply->fds[0]));
        if (attached->has_socket != 0) made.roce_socket = base::GuardedFd(std::move(reply->fds.back()));
        return made;
      }
      error = reply.error();
    }
    // The agent may be killed in the middle of this as well: then the next one is asked.
    const bool again = error.code == ECONNRESET || error.code == EPIPE;
    if (!again || base::now() >= deadline) return std::unexpected(error);
    ::poll(nullptr, 0, 2);
  }
}

base::Result<void> HostTie::start_helper() {
  {
    const std::lock_guard lock(mutex_);
    idle_since_ = base::now();
    if (helper_runs_) return {};
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return base::fail_errno("creating a socketpair");
    wake_ = base::GuardedFd(base::UniqueFd(ends[0]));
    woken_ = base::GuardedFd(base::UniqueFd(ends[1]));
    helper_runs_ = true;
  }
  // The program's signals are its own threads' business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  base::Result<void> started;
  try {
    std::thread([self = instance()] {
      ::pthread_setname_np(::pthread_self(), "verbena");
      self->help();
    }).detach();
  } catch (const std::system_error& error) {
    const std::lock_guard lock(mutex_);
    helper_runs_ = false;
    started =
        base::fail(error.code().value(), "the helper thread can't be started: " + std::string(error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void HostTie::wake() const {
  const uint64_t one = 1;
  if (const int fd = wake_.get(); fd >= 0) [[maybe_unused]]
    const auto written = ::write(fd, &one, sizeof one);
}

void HostTie::help() {
  for (;;) {
    pollfd ready[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
    int timeout_ms = -1;
    bool disconnected = false;
    {
      const std::lock_guard lock(mutex_);
      ready[0].fd = connection_.socket.get();
      ready[1].fd = woken_.get();
      if (users_ == 0) timeout_ms = static_cast<int>(kLinger.count() / 1'000'000) + 1;
      // Without a slot there is nobody to come back to: only the end of the last user is waited for.
      if (lost_) ready[0].fd = -1;
      disconnected = attached_ && !lost_ && ready[0].fd < 0;
    }
    if (disconnected) {
      reconnect();
      continue;
    }
    ::poll(ready, 2, timeout_ms);
    if (ready[1].revents != 0) {
      char tokens[64];
      [[maybe_unused]] const auto taken = ::recv(ready[1].fd, tokens, sizeof tokens, MSG_DONTWAIT);
    }
    if (ready[0].revents != 0) on_message();
    if (detach_if_idle()) return;
  }
}

bool HostTie::detach_if_idle() {
  // attach_mutex_ before mutex_, as in acquire(): nobody attaches while we decide to leave.
  const std::unique_lock attaching(attach_mutex_, std::try_to_lock);
  if (!attaching) return false;
  Connection leaving;
  {
    const std::lock_guard lock(mutex_);
    if (users_ > 0 || base::now() - idle_since_ < kLinger) return false;
    leaving = std::move(connection_);
    drop_attachment();
    wake_.reset();
    woken_.reset();
    helper_runs_ = false;
  }
  const int socket = leaving.socket.get();
  if (socket >= 0 && ipc::send(socket, ipc::Detach{}))
    (void)ipc::receive_until(socket, base::now() + base::seconds(1));
  return true;
}

void HostTie::on_message() {
  int socket = -1;
  {
    const std::lock_guard lock(mutex_);
    socket = connection_.socket.get();
  }
  auto message = ipc::receive(socket);
  if (!message) {
    if (message.error().code == EAGAIN) return;
    const std::lock_guard lock(mutex_);
    connection_.socket.reset();  // help() reconnects
    return;
  }
  switch (message->kind) {
    case ipc::Kind::kDevicesChanged:
      return tell_change();
    case ipc::Kind::kSocket: {
      const std::lock_guard lock(mutex_);
      if (message->fds.size() == 1)
        connection_.roce_socket = base::GuardedFd(std::move(message->fds.front()));
      return;
    }
    default:
      return;  // an answer to nothing we asked
  }
}

void HostTie::reconnect() {
  Claim claim;
  {
    const std::lock_guard lock(mutex_);
    claim = connection_.claim;
  }
  // One of many survivors: each waits a little, at random, so that one agent is started and not two hundred.
  const auto patience = base::milliseconds(base::random_u64() % 40);
  auto connection = connect(&claim, patience);
  if (connection) {
    {
      const std::lock_guard lock(mutex_);
      if (!attached_) return;
      connection_ = std::move(*connection);
      reinterpret_cast<arena::TablesHead*>(tables_.data())->slot.store(connection_.claim.slot);
    }
    return tell_change();  // what changed while no agent ran
  }
  const auto& error = connection.error();
  // Only the agent's word on the slot, or segments that the program closed, are final. All else may pass: no
  // descriptor left, no memory, an agent that can't be started now.
  if (error.code != EBUSY && error.code != EINVAL && error.code != EBADF) {
    ::poll(nullptr, 0, 100);
    return;  // help() tries again
  }
  base::explain(error);
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }
  const std::lock_guard lock(listeners_mutex_);
  for (auto* listener : listeners_) listener->on_slot_lost(error);
}

void HostTie::tell_change() {
  std::shared_ptr<const arena::DeviceTable> before;
  std::shared_ptr<const arena::DeviceTable> after;
  {
    const std::lock_guard lock(mutex_);
    if (!devices_ || !connection_.registry) return;
    after = connection_.registry.read_view(connection_.view);
    if (!after) return;
    before = std::exchange(devices_, after);
  }
  if (std::memcmp(before.get(), after.get(), sizeof *after) == 0) return;
  const std::lock_guard lock(listeners_mutex_);
  for (auto* listener : listeners_) listener->on_devices_changed(*before, *after);
}

}  // namespace verbena::client
