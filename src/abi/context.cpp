// Opening, importing and closing a device.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "abi/abi.hpp"
#include "abi/process_state.hpp"
#include "abi/refusals.hpp"

namespace verbena::abi {
namespace {

int completion_vectors() { return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

// Takes over the caller's reference of the device when it succeeds.
ibv_context* make_context(Device& device, std::unique_ptr<client::OpenDevice> open) {
  auto* made = new Context;
  made->device = &device;
  made->open = std::move(open);
  if (const auto record = made->open->record()) made->as_opened = attributes_of(*record);
  made->verbs.sz = sizeof(verbs_context);
  fill_operations(made->verbs);

  ibv_context& context = made->verbs.context;
  context.device = &device.ibv;
  context.cmd_fd = made->open->cmd_fd();
  context.async_fd = made->open->events().fd();
  context.num_comp_vectors = completion_vectors();
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  return &context;
}

base::Result<ibv_context*> import_context(int cmd_fd) {
  auto open = client::OpenDevice::import(cmd_fd);
  if (!open) return std::unexpected(open.error());
  auto record = (*open)->record();
  if (!record) return std::unexpected(record.error());
  auto devices = acquire_devices();
  if (!devices) return std::unexpected(devices.error());

  const auto name = arena::text(record->name);
  const auto found =
      std::ranges::find_if(*devices, [&](const Device* device) { return device->ibv.name == name; });
  if (found == devices->end()) {
    release_devices(*devices);
    return base::fail(ENODEV, fmt::format("the imported device {} is gone", name));
  }
  Device& device = **found;
  devices->erase(found);  // its reference goes to the context
  release_devices(*devices);
  return make_context(device, std::move(*open));
}

}  // namespace

base::Result<ibv_context*> open_context(Device& device) {
  auto open = client::OpenDevice::open(device.ibv.name);
  if (!open) return std::unexpected(open.error());
  ibv_context* context = make_context(device, std::move(*open));
  const std::lock_guard lock(state().mutex);
  ++device.references;
  return context;
}

void hold_context(Context& context) {
  const std::lock_guard lock(state().mutex);
  ++context.references;
}

void release_context(Context& context) {
  {
    const std::lock_guard lock(state().mutex);
    if (--context.references != 0) return;
    release_device_locked(*context.device);
  }
  pthread_mutex_destroy(&context.verbs.context.mutex);
  delete &context;  // talks to the agent, so not under the lock
}

bool same_context(ibv_context* one, ibv_context* other) {
  if (one == other) return true;
  struct stat a {
  }, b{};
  return ::fstat(one->cmd_fd, &a) == 0 && ::fstat(other->cmd_fd, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

int refused_as_stale(ibv_context* context) noexcept {
  const auto usable = guarded([&] { return Context::from(context).usable(); });
  return usable ? EIO : explained(usable.error());
}

base::Result<void> Context::usable() const {
  if (open->stale())
    return base::fail(
        EIO, fmt::format("{} was opened before fork(): a child has to open it again", device->ibv.name));
  return {};
}

base::Result<arena::DeviceRecord> Context::record() const {
  if (auto ok = usable(); !ok) return std::unexpected(ok.error());
  return open->record();
}

base::Result<arena::PortRecord> Context::port(uint32_t number) const {
  auto device_record = record();
  if (!device_record) return std::unexpected(device_record.error());
  const unsigned count = std::min<unsigned>(device_record->port_count, arena::kMaxPorts);
  if (number == 0 || number > count)
    return base::fail(EINVAL, fmt::format("{} has ports 1 to {}, not {}", device->ibv.name, count, number));
  return device_record->ports[number - 1];
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_context* vb_ibv_open_device(ibv_device* device) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::open_context(abi::Device::from(device)); }));
}
VERBENA_SAME_PROTOTYPE(ibv_open_device);

VERBENA_ENTRY ibv_context* vb_ibv_import_device(int cmd_fd) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::import_context(cmd_fd); }));
}
VERBENA_SAME_PROTOTYPE(ibv_import_device);

VERBENA_ENTRY int vb_ibv_close_device(ibv_context* context) noexcept {
  abi::release_context(abi::Context::from(context));
  return 0;
}
VERBENA_SAME_PROTOTYPE(ibv_close_device);
