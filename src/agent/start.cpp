// How an agent begins: from nothing, or from what an earlier one left behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "agent/agent.hpp"
#include "agent/device_builder.hpp"
#include "agent/runtime_directory.hpp"
#include "base/random.hpp"
#include "ipc/process_id.hpp"
#include "net/interfaces.hpp"

namespace verbena::agent {
namespace {

std::string machine_id() {
  std::string id;
  for (const char* path :
       {"/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"}) {
    std::ifstream file(path);
    if (std::getline(file, id) && !id.empty()) break;
  }
  return id;
}

bool alive(const Owner& owner) {
  return owner.pid != 0 && ipc::start_ticks_of(static_cast<pid_t>(owner.pid)) == owner.start_ticks;
}

}  // namespace

base::Result<void> Agent::begin() {
  survivors_ = find_survivors();
  if (auto latest = open_latest_registry(survivors_)) {
    auto registry = arena::Registry::open(latest->get(), arena::Access::kReadWrite);
    if (!registry) return std::unexpected(registry.error());
    if (auto used = use_registry(std::move(*latest), std::move(*registry)); !used) return used;
  } else {
    auto fresh = arena::Registry::create(registry_memfd_name().c_str());
    if (!fresh) return std::unexpected(fresh.error());
    if (auto used = use_registry(std::move(fresh->first), std::move(fresh->second)); !used) return used;
  }
  auto watch = net::watch_interfaces();
  if (!watch) return std::unexpected(watch.error());
  interface_watch_ = std::move(*watch);
  auto watched = loop_.watch(interface_watch_.get(), [this] {
    net::drain_changes(interface_watch_.get());
    if (!interfaces_due_) interfaces_due_ = base::now() + base::milliseconds(50);
  });
  if (!watched) return watched;
  watched = loop_.watch(listener_.get(), [this] { accept(listener_.get(), false); });
  if (!watched) return watched;

  if (options_.park && adopt_park(std::move(options_.park))) {
    finish_start();
    return {};
  }
  // Our own user's sockets on the port can only be survivors': one of them brings the park with its Hello.
  const bool survivors_have_port =
      registry_.layout().has_group.load() != 0 || net::port_owner_uid() == static_cast<int64_t>(::geteuid());
  if (survivors_have_port) {
    park_deadline_ = base::now() + options_.survivor_wait;
  } else {
    take_port();
    finish_start();
  }
  return {};
}

base::Result<void> Agent::use_registry(base::UniqueFd fd, arena::Registry registry) {
  // Opened anew for reading only: what clients get can't be mapped for writing.
  base::UniqueFd readonly(::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!readonly) return base::fail_errno("opening the registry for reading");
  auto interfaces = net::list_interfaces();
  if (!interfaces) return std::unexpected(interfaces.error());
  auto directory = make_runtime_directory(options_.system);
  if (!directory) return std::unexpected(directory.error());

  views_.reset();
  slots_.reset();
  directory_ = std::move(*directory);
  registry_fd_ = std::move(fd);
  registry_readonly_ = std::move(readonly);
  registry_ = std::move(registry);
  auto& layout = registry_.layout();
  const bool same_pids = layout.pid_namespace == ipc::namespace_inode("pid");
  layout.pid_namespace = ipc::namespace_inode("pid");
  layout.generation.fetch_add(1);
  layout.agent_pid.store(::getpid());
  registry_.count(arena::Counter::kAgentStarts);

  slots_.emplace(registry_, base::random_u64());
  if (const uint32_t leased = layout.leased.load(); leased != 0)
    slots_->limit_to({leased >> 16, leased & 0xffff});
  if (layout.host_guid.load() == 0)
    layout.host_guid.store(host_guid(machine_id(), ipc::namespace_inode("net"), *interfaces));
  views_.emplace(registry_, directory_.path, layout.host_guid.load(), std::move(*interfaces));
  for (auto& attachment : attachments_) attachment.reset();
  if (same_pids) {
    adopt_slots();
    adopt_observers();
  } else {
    // Pids of another namespace mean nothing here: those processes keep their slots until they come back.
    for (const auto slot : slots_->in_state(arena::SlotState::kActive)) attachments_[slot.value].emplace();
  }
  for (const auto slot : slots_->in_state(arena::SlotState::kLeased)) let_lease_end(slot);
  return {};
}

void Agent::adopt_slots() {
  for (const auto slot : slots_->in_state(arena::SlotState::kActive)) {
    const Owner owner = slots_->owner(slot);
    if (owner.pid == 0) {  // in a pid namespace that the agent before us didn't see either: it will come back
      attachments_[slot.value].emplace();
      continue;
    }
    // Opened first, compared second: the start time then speaks of the process that the pidfd names.
    base::UniqueFd pidfd = ipc::open_pidfd(static_cast<pid_t>(owner.pid));
    if (!pidfd || !alive(owner)) {
      // Its tables went with it, and its time-wait with them: assume a common one.
      slots_->release(slot, base::now(), base::seconds(2));
      registry_.count(arena::Counter::kOwnersEnded);
      continue;
    }
    auto& attachment = attachments_[slot.value].emplace();
    attachment.pidfd = std::move(pidfd);
    const auto watched = loop_.watch(attachment.pidfd.get(),
                                     [this, slot] { end_attachment(slot, arena::Counter::kOwnersEnded); });
    if (!watched) log(watched.error().sentence);
  }
}

void Agent::adopt_observers() {
  observers_.clear();
  for (unsigned i = 0; i < arena::kMaxObservers; ++i) {
    auto& record = registry_.layout().observers[i];
    const Owner owner{.pid = record.pid.load(), .start_ticks = record.start_ticks.load()};
    if (owner.pid == 0) continue;
    base::UniqueFd pidfd = ipc::open_pidfd(static_cast<pid_t>(owner.pid));
    if (!pidfd || !alive(owner)) {
      record.pid.store(0);
      continue;
    }
    const int key = pidfd.get();
    observers_[key] = {std::move(pidfd), i};
    const auto watched = loop_.watch(key, [this, key] { end_observer(key); });
    if (!watched) log(watched.error().sentence);
  }
}

void Agent::finish_start() {
  ready_ = true;
  survivors_.clear();
  std::vector<int> waiting;
  for (const auto& [socket, session] : sessions_)
    if (session.deferred) waiting.push_back(socket);
  for (const int socket : waiting) {
    Session* session = session_at(socket);
    if (session == nullptr) continue;
    ipc::Message message = std::move(*session->deferred);
    session->deferred.reset();
    dispatch(*session, message);
  }
}

}  // namespace verbena::agent
