// ibv_get_device_list and what a program asks of a device before it opens one.
#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "abi/abi.hpp"
#include "abi/process_state.hpp"

namespace verbena::abi {
namespace {

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

Device* make_device(const arena::DeviceRecord& record, int index) {
  auto* device = new Device;
  const std::string_view name = arena::text(record.name);
  device->ibv.node_type = IBV_NODE_CA;
  device->ibv.transport_type = IBV_TRANSPORT_IB;
  put(device->ibv.name, name);
  put(device->ibv.dev_name, fmt::format("uverbs{}", index));
  put(device->ibv.dev_path, fmt::format("/sys/class/infiniband_verbs/uverbs{}", index));
  put(device->ibv.ibdev_path, fmt::format("/sys/class/infiniband/{}", name));
  device->node_guid = record.node_guid;
  device->index = index;
  return device;
}

bool shows(const Device& device, const arena::DeviceRecord& record, int index) {
  return device.ibv.name == arena::text(record.name) && device.node_guid == record.node_guid &&
         device.index == index;
}

}  // namespace

void release_device_locked(Device& device) {
  if (--device.references == 0) delete &device;
}

base::Result<std::vector<Device*>> acquire_devices() {
  const auto listed = client::list_devices();
  if (!listed) return std::unexpected(listed.error());
  const arena::DeviceTable& table = **listed;

  std::vector<Device*> now;
  now.reserve(arena::kMaxDevices);
  ProcessState& process = state();
  const std::lock_guard lock(process.mutex);
  const int count = static_cast<int>(std::min(table.device_count, arena::kMaxDevices));
  for (int index = 0; index < count; ++index) {
    const arena::DeviceRecord& record = table.devices[index];
    const auto known = std::ranges::find_if(
        process.devices, [&](const Device* device) { return shows(*device, record, index); });
    now.push_back(known != process.devices.end() ? *known : make_device(record, index));
    now.back()->references += 2;  // the caller's, and the new list's
  }
  for (Device* device : process.devices) release_device_locked(*device);
  process.devices = now;
  return now;
}

void release_devices(const std::vector<Device*>& devices) {
  const std::lock_guard lock(state().mutex);
  for (Device* device : devices) release_device_locked(*device);
}

namespace {

// Adds the list's final NULL; the references go with the array.
base::Result<ibv_device**> device_array(int* count) {
  auto devices = acquire_devices();
  if (!devices) return std::unexpected(devices.error());
  auto** list = new (std::nothrow) ibv_device* [devices->size() + 1] {};
  if (!list) {
    release_devices(*devices);
    return base::fail(ENOMEM, "out of memory for the device list");
  }
  std::ranges::transform(*devices, list, [](Device* device) { return &device->ibv; });
  if (count) *count = static_cast<int>(devices->size());
  return list;
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_device** vb_ibv_get_device_list(int* num_devices) noexcept {
  if (num_devices) *num_devices = 0;
  return abi::or_null(abi::guarded([&] { return abi::device_array(num_devices); }));
}
VERBENA_SAME_PROTOTYPE(ibv_get_device_list);

VERBENA_ENTRY void vb_ibv_free_device_list(ibv_device** list) noexcept {
  if (!list) return;
  const std::lock_guard lock(abi::state().mutex);
  for (ibv_device** entry = list; *entry; ++entry) abi::release_device_locked(abi::Device::from(*entry));
  delete[] list;
}
VERBENA_SAME_PROTOTYPE(ibv_free_device_list);

VERBENA_ENTRY const char* vb_ibv_get_device_name(ibv_device* device) noexcept { return device->name; }
VERBENA_SAME_PROTOTYPE(ibv_get_device_name);

VERBENA_ENTRY int vb_ibv_get_device_index(ibv_device* device) noexcept {
  return abi::Device::from(device).index;
}
VERBENA_SAME_PROTOTYPE(ibv_get_device_index);

VERBENA_ENTRY __be64 vb_ibv_get_device_guid(ibv_device* device) noexcept {
  return htobe64(abi::Device::from(device).node_guid);
}
VERBENA_SAME_PROTOTYPE(ibv_get_device_guid);
