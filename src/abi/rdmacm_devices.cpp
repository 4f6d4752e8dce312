// The devices as RDMA CM sees them: each opened once for the process, found by address.
#include <fcntl.h>
#include <fmt/format.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"
#include "abi/rdmacm_objects.hpp"
#include "abi/rdmacm_verbs.hpp"

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

// All devices, opened.
base::Result<std::vector<ibv_context*>> open_all() {
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
  return contexts;
}

base::Result<ibv_context**> context_array(int* count) {
  const auto contexts = open_all();
  if (!contexts) return std::unexpected(contexts.error());
  auto** list = new ibv_context* [contexts->size() + 1] {};
  std::ranges::copy(*contexts, list);
  if (count) *count = static_cast<int>(contexts->size());
  return list;
}

// Those that are open already.
std::vector<ibv_context*> open_ones() {
  std::vector<ibv_context*> contexts;
  const std::lock_guard lock(state().mutex);
  std::ranges::copy_if(state().cm_contexts, std::back_inserter(contexts),
                       [](ibv_context* context) { return !Context::from(context).open->stale(); });
  return contexts;
}

std::optional<CmDevice> find_among(const std::vector<ibv_context*>& contexts, const ipc::CmAddress& address) {
  for (ibv_context* context : contexts)
    if (const auto record = Context::from(context).record())
      if (const auto place = client::find_gid(*record, address)) return CmDevice{context, *place};
  return std::nullopt;
}

}  // namespace

base::Result<CmDevice> device_of(const ipc::CmAddress& address) {
  if (const auto found = find_among(open_ones(), address)) return *found;
  const auto all = open_all();  // there may be one more by now
  if (!all) return std::unexpected(all.error());
  if (const auto found = find_among(*all, address)) return *found;
  return base::fail(ENODEV,
                    fmt::format("no RDMA device has the address {}; `verbena devices` lists what they have",
                                client::to_text(address)));
}

base::Result<void> open_cm_devices() {
  if (!open_ones().empty()) return {};
  const auto all = open_all();
  if (!all) return std::unexpected(all.error());
  if (all->empty()) return base::fail(ENODEV, "there is no RDMA device here");
  return {};
}

base::Result<ibv_pd*> default_pd(ibv_context* context) {
  ProcessState& process = state();
  const auto find = [&]() -> ibv_pd* {
    const auto found = std::ranges::find(process.cm_domains, context, &ibv_pd::context);
    return found != process.cm_domains.end() ? *found : nullptr;
  };
  {
    const std::lock_guard lock(process.mutex);
    if (ibv_pd* known = find()) return known;
  }
  ibv_pd* made = vb_ibv_alloc_pd(context);
  if (made == nullptr) return base::fail_errno("allocating RDMA CM's own protection domain");
  const std::lock_guard lock(process.mutex);
  if (ibv_pd* known = find()) return known;  // the other one is of no use, and costs a few bytes once
  process.cm_domains.push_back(made);
  return made;
}

base::Result<ibv_xrcd*> default_xrcd(ibv_context* context) {
  ProcessState& process = state();
  const auto find = [&]() -> ibv_xrcd* {
    const auto found = std::ranges::find_if(process.cm_xrc_domains, [&](ibv_xrcd* known) {
      return known->context == context && !Xrcd::from(known).link->lost();
    });
    return found != process.cm_xrc_domains.end() ? *found : nullptr;
  };
  {
    const std::lock_guard lock(process.mutex);
    if (ibv_xrcd* known = find()) return known;
  }
  ibv_xrcd_init_attr wanted{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  ibv_xrcd* made = open_xrcd(context, &wanted);
  if (made == nullptr) return base::fail_errno("opening RDMA CM's own XRC domain");
  ibv_xrcd* known = nullptr;
  {
    const std::lock_guard lock(process.mutex);
    known = find();
    if (known == nullptr) process.cm_xrc_domains.push_back(made);
  }
  if (known == nullptr) return made;
  close_xrcd(made);  // another thread was faster
  return known;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_context** vb_rdma_get_devices(int* num_devices) noexcept {
  if (num_devices) *num_devices = 0;
  return abi::or_null(abi::guarded([&] { return abi::context_array(num_devices); }));
}
VERBENA_SAME_PROTOTYPE(rdma_get_devices);

VERBENA_ENTRY void vb_rdma_free_devices(ibv_context** list) noexcept { delete[] list; }
VERBENA_SAME_PROTOTYPE(rdma_free_devices);
