// librdmacm: what doesn't need connections yet.
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>

#include "abi/abi.hpp"
#include "abi/process_state.hpp"

namespace verbena::abi {
namespace {

// The process's context of a device, opened by the first call that wants it. After fork() the child opens its
// own.
base::Result<ibv_context*> shared_context(Device& device) {
  const auto serves = [&](ibv_context* context) {
    const Context& ours = Context::from(context);
    return ours.device == &device && !ours.open->stale();
  };
  ProcessState& process = state();
  const auto find = [&] {
    const auto found = std::ranges::find_if(process.cm_contexts, serves);
    return found != process.cm_contexts.end() ? *found : nullptr;
  };
  {
    const std::lock_guard lock(process.mutex);
    if (ibv_context* known = find()) return known;
  }
  auto opened = open_context(device);
  if (!opened) return opened;
  ibv_context* known = nullptr;
  {
    const std::lock_guard lock(process.mutex);
    known = find();
    if (!known) process.cm_contexts.push_back(*opened);
  }
  if (!known) return opened;
  release_context(Context::from(*opened));  // another thread was faster
  return known;
}

base::Result<ibv_context**> context_array(int* count) {
  auto devices = acquire_devices();
  if (!devices) return std::unexpected(devices.error());
  std::vector<ibv_context*> contexts;
  base::Result<void> opened;
  for (Device* device : *devices) {
    auto context = shared_context(*device);
    if (!context) {
      opened = std::unexpected(context.error());
      break;
    }
    contexts.push_back(*context);
  }
  release_devices(*devices);
  if (!opened) return std::unexpected(opened.error());

  auto** list = new ibv_context* [contexts.size() + 1] {};
  std::ranges::copy(contexts, list);
  if (count) *count = static_cast<int>(contexts.size());
  return list;
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_context** vb_rdma_get_devices(int* num_devices) noexcept {
  if (num_devices) *num_devices = 0;
  return abi::or_null(abi::guarded([&] { return abi::context_array(num_devices); }));
}
VERBENA_SAME_PROTOTYPE(rdma_get_devices);

VERBENA_ENTRY void vb_rdma_free_devices(ibv_context** list) noexcept { delete[] list; }
VERBENA_SAME_PROTOTYPE(rdma_free_devices);
