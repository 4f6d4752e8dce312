#include "client/host_tie.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <cstdlib>
#include <string_view>

#include "arena/process_segments.hpp"
#include "ipc/channel.hpp"

namespace verbena::client {
namespace {

// Constant-initialised and never destroyed (the pointer is leaked on purpose), see HostTie::instance.
std::mutex instance_mutex;
std::shared_ptr<HostTie>* current_instance = nullptr;
std::atomic<const HostTie*> current_tie = nullptr;  // the same, for those who only compare
bool fork_handlers_installed = false;

// Same-uid containers in one network namespace are strangers unless the user says otherwise (DESIGN 2.3).
bool trusts_containers() {
  const char* given = ::secure_getenv("VERBENA_TRUST_CONTAINERS");
  return given != nullptr && std::string_view(given) == "1";
}

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
  memory_fd_.reset();
  wake_.wake.reset();
  wake_.woken.reset();
  connection_.socket.reset();
  connection_.registry_fd.reset();
  connection_.park.reset();
  connection_.roce_socket.reset();
  connection_.registry.forget();
  attached_ = false;
  // Leaked: its destructor would speak to the parent's peers, and the helper thread, which may have been in
  // the middle of it, isn't here.
  new std::shared_ptr<HelperWork>(std::move(work_));
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

uint32_t HostTie::epoch() const {
  const std::lock_guard lock(mutex_);
  return connection_.claim.epoch;
}

std::optional<HostTie::Claim> HostTie::claim() const {
  const std::lock_guard lock(mutex_);
  if (!attached_ || lost_) return std::nullopt;
  return connection_.claim;
}

std::span<std::byte> HostTie::tables() const {
  const std::lock_guard lock(mutex_);
  return tables_ ? std::span(tables_.data(), tables_.size()) : std::span<std::byte>();
}

std::span<std::byte> HostTie::rings() const {
  const std::lock_guard lock(mutex_);
  return rings_ ? std::span(rings_.data(), rings_.size()) : std::span<std::byte>();
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
  memory_fd_.reset();
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
  // Opened by ourselves, so that whoever we give it to needs no right to trace us; without it large transfers
  // are slower, and some impossible, but small ones go.
  base::UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  std::shared_ptr<HelperWork> old_work;  // of an attachment whose slot was lost
  {
    const std::lock_guard working(working_mutex_);
    const std::lock_guard lock(mutex_);
    old_work = std::move(work_);
    tables_ = std::move(tables->mapping);
    rings_ = std::move(rings->mapping);
    tables_fd_ = base::GuardedFd(std::move(tables->fd));
    rings_fd_ = base::GuardedFd(std::move(rings->fd));
    memory_fd_ = base::GuardedFd(std::move(memory));
  }
  old_work.reset();
  auto started = start_helper();
  auto connection = started ? connect(nullptr, {}, ipc::wait_idly)
                            : base::Result<Connection>(std::unexpected(started.error()));
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

base::Result<HostTie::Connection> HostTie::connect(const Claim* resume, base::Duration patience,
                                                   const ipc::Waiting& waiting) {
  LinkRequest request{.devices = wanted_devices(), .patience = patience, .waiting = waiting};
  ipc::Attach wanted{.trusts_containers = trusts_containers() ? 1u : 0u};
  {
    const std::lock_guard lock(mutex_);
    if (resume != nullptr) request.park = connection_.park.get();
    wanted.tables = tables_fd_.get();
    wanted.rings = rings_fd_.get();
    wanted.wake = wake_.wake.get();
    wanted.memory = memory_fd_.get();
  }
  if (wanted.tables < 0 || wanted.rings < 0 || wanted.wake < 0)
    return base::fail(EBADF,
                      "the program closed descriptors of Verbena's, so it can't attach to the host agent");
  wanted.has_memory = wanted.memory >= 0 ? 1 : 0;
  const int all[] = {wanted.tables, wanted.rings, wanted.wake, wanted.memory};
  const auto descriptors = std::span(all).first(wanted.has_memory != 0 ? 4 : 3);
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
      auto reply = ipc::receive_until(link->socket.get(), deadline, waiting);
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
    waiting(-1, base::now() + base::milliseconds(2));
  }
}

}  // namespace verbena::client
