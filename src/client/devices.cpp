#include "client/devices.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "arena/segment.hpp"
#include "base/random.hpp"
#include "client/agent_link.hpp"
#include "client/data_path.hpp"
#include "client/host_tie.hpp"
#include "ipc/messages.hpp"

namespace verbena::client {
namespace {

// What a cmd_fd holds, so that any process that gets a duplicate can open the same device.
struct CommandFile {
  uint64_t magic = 0x6d6d43616e627256;  // "VrbnaCmm"
  char device[arena::kMaxDeviceName]{};
  uint64_t process = 0;  // whose: handles mean something there only
};

// Tells this process from all others, a child of fork() from its parent too.
uint64_t this_process() {
  static const uint64_t drawn = base::random_u64();
  return drawn ^ static_cast<uint64_t>(::getpid());
}

base::Result<base::UniqueFd> make_command_file(std::string_view device) {
  base::UniqueFd fd(::memfd_create("verbena-device", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return base::fail_errno("creating a command descriptor");
  CommandFile content;
  ipc::set_text(content.device, device);
  content.process = this_process();
  if (::write(fd.get(), &content, sizeof content) != sizeof content ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return base::fail_errno("writing a command descriptor");
  return fd;
}

const arena::DeviceRecord* find_device(const arena::DeviceTable& table, std::string_view name) {
  for (unsigned i = 0; i < table.device_count; ++i)
    if (arena::text(table.devices[i].name) == name) return &table.devices[i];
  return nullptr;
}

base::Error no_such_device(std::string_view name) {
  return {ENODEV, fmt::format("there is no device '{}' here; `verbena devices` lists those there are", name)};
}

}  // namespace

base::Result<std::shared_ptr<const arena::DeviceTable>> list_devices() {
  auto link = connect_agent({.devices = wanted_devices()});
  if (!link) return std::unexpected(link.error());
  auto table = link->registry.read_view(link->welcome.view);
  if (!table) return base::fail(EIO, "the host agent shows no devices");
  return table;
}

struct OpenDevice::Impl final : DeviceListener {
  std::shared_ptr<HostTie> tie;
  std::string name;
  base::GuardedFd command;
  bool foreign = false;
  std::unique_ptr<verbs::EventQueue> events;

  void on_devices_changed(const arena::DeviceTable& before, const arena::DeviceTable& after) override {
    const auto* was = find_device(before, name);
    const auto* is = find_device(after, name);
    if (was == nullptr || is == nullptr) return;
    for (unsigned p = 0; p < is->port_count; ++p) {
      const auto& old_port = was->ports[p];
      const auto& new_port = is->ports[p];
      if (std::memcmp(old_port.gids, new_port.gids, sizeof new_port.gids) != 0)
        events->push({IBV_EVENT_GID_CHANGE, p + 1});
      if (old_port.state != new_port.state)
        events->push(
            {new_port.state == arena::PortState::kActive ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR,
             p + 1});
      if (old_port.state != new_port.state && new_port.state != arena::PortState::kActive)
        DataPath::on_port_down(*events, p + 1);
    }
  }
  void on_slot_lost(const base::Error&) override { events->push({IBV_EVENT_DEVICE_FATAL, 0}); }
};

OpenDevice::OpenDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OpenDevice::~OpenDevice() {
  impl_->tie->unlisten(impl_.get());
  impl_->tie->release();
}

base::Result<std::unique_ptr<OpenDevice>> OpenDevice::open(std::string_view name) {
  auto impl = std::make_unique<Impl>();
  impl->tie = HostTie::instance();
  impl->name = name;
  auto command = make_command_file(name);
  if (!command) return std::unexpected(command.error());
  impl->command = base::GuardedFd(std::move(*command));
  auto events = verbs::EventQueue::create();
  if (!events) return std::unexpected(events.error());
  impl->events = std::move(*events);
  if (auto acquired = impl->tie->acquire(); !acquired) return std::unexpected(acquired.error());
  if (find_device(*impl->tie->devices(), name) == nullptr) {
    impl->tie->release();
    return std::unexpected(no_such_device(name));
  }
  impl->tie->listen(impl.get());
  return std::unique_ptr<OpenDevice>(new OpenDevice(std::move(impl)));
}

base::Result<std::unique_ptr<OpenDevice>> OpenDevice::import(int cmd_fd) {
  CommandFile content;
  const int seals = ::fcntl(cmd_fd, F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_WRITE) != 0;
  CommandFile expected;
  if (!sealed || ::pread(cmd_fd, &content, sizeof content, 0) != sizeof content ||
      content.magic != expected.magic)
    return base::fail(EINVAL,
                      fmt::format("descriptor {} is no duplicate of a Verbena context's cmd_fd", cmd_fd));
  auto device = open(arena::text(content.device));
  if (!device) return device;
  (*device)->impl_->command = base::GuardedFd(base::UniqueFd(cmd_fd));
  (*device)->impl_->foreign = content.process != this_process();
  return device;
}

base::Result<arena::DeviceRecord> OpenDevice::record() const {
  if (stale()) return base::fail(EIO, "this device was opened before fork(); the child must open its own");
  const auto table = impl_->tie->devices();
  const auto* found = find_device(*table, impl_->name);
  if (found == nullptr) return std::unexpected(no_such_device(impl_->name));
  return *found;
}

base::Slot OpenDevice::slot() const { return impl_->tie->slot(); }
bool OpenDevice::stale() const { return !impl_->tie->current(); }
base::Result<void> OpenDevice::importable() const {
  if (!impl_->foreign) return {};
  return base::fail(
      ENOENT,
      "what another process allocated or registered can't be imported: its memory is reached through "
      "its own queue pairs; exchange rkeys, or register the memory here as well");
}
int OpenDevice::cmd_fd() const { return impl_->command.get(); }
verbs::EventQueue& OpenDevice::events() { return *impl_->events; }

}  // namespace verbena::client
