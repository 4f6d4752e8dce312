// Device memory. There is no device: it is memory of the process's own that peers can map, so that atomics on
// it are quick.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "abi/process_state.hpp"
#include "base/page_size.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

constexpr uint64_t kUnit = 4;  // what adapters' device memory is accessed in; programs know it so
std::atomic<uint64_t> in_use = 0;
// By handle, for ibv_import_dm; under state().mutex, which a child of fork() finds free.
std::map<uint32_t, const Dm*> known;

base::Result<void> check(const ibv_dm* ibv, const Dm& dm, uint64_t offset, size_t length) {
  if (offset % kUnit != 0 || length % kUnit != 0)
    return base::fail(
        EINVAL,
        fmt::format("device memory is copied in words: {} divides neither all of offset {} and length {}",
                    kUnit, offset, length));
  if (ibv == nullptr || offset > dm.length || length > dm.length - offset)
    return base::fail(EFAULT, fmt::format("{} bytes from {} on go past the {} of the device memory", length,
                                          offset, dm.length));
  return {};
}

int copy_to(ibv_dm* ibv, uint64_t offset, const void* from, size_t length) {
  Dm& dm = Dm::from(ibv);
  if (auto ok = check(ibv, dm, offset, length); !ok) return explained(ok.error());
  std::memcpy(dm.segment->mapping.data() + offset, from, length);
  return 0;
}

int copy_from(void* into, ibv_dm* ibv, uint64_t offset, size_t length) {
  Dm& dm = Dm::from(ibv);
  if (auto ok = check(ibv, dm, offset, length); !ok) return explained(ok.error());
  std::memcpy(into, dm.segment->mapping.data() + offset, length);
  return 0;
}

base::Result<void> reserve(uint64_t length) {
  uint64_t used = in_use.load();
  do {
    if (length > verbs::kMaxDmBytes - used)
      return base::fail(ENOMEM,
                        fmt::format("{} bytes of device memory are in use, of {}", used, verbs::kMaxDmBytes));
  } while (!in_use.compare_exchange_weak(used, used + length));
  return {};
}

Dm* make(ibv_context* context, std::shared_ptr<arena::Segment> segment, uint64_t length) {
  auto* dm = new Dm;
  dm->ibv.context = context;
  dm->ibv.memcpy_to_dm = copy_to;
  dm->ibv.memcpy_from_dm = copy_from;
  dm->ibv.handle = static_cast<uint32_t>(segment->fd.get());
  dm->segment = std::move(segment);
  dm->length = length;
  hold_context(Context::from(context));
  return dm;
}

// In a child of fork(), too: it needs nothing of the host.
base::Result<ibv_dm*> allocate(ibv_context* context, const ibv_alloc_dm_attr& attr) {
  const uint64_t page = base::page_size();
  if (attr.comp_mask != 0 || attr.length == 0 || attr.length > verbs::kMaxDmBytes ||
      attr.log_align_req >= 64 || uint64_t{1} << attr.log_align_req > page)
    return base::fail(EINVAL,
                      fmt::format("ibv_alloc_dm: there are 1 to {} bytes of device memory, aligned to "
                                  "a page at most, and no comp_mask",
                                  verbs::kMaxDmBytes));
  if (auto ok = reserve(attr.length); !ok) return std::unexpected(ok.error());
  const uint64_t size = (attr.length + page - 1) & ~(page - 1);
  auto segment = arena::create_sealed("verbena-dm", size, arena::Sharing::kPeersWrite);
  if (!segment) {
    in_use -= attr.length;
    return std::unexpected(segment.error());
  }
  ::madvise(segment->mapping.data(), size, MADV_DOFORK);  // a child may still copy, as from any memory
  auto* dm = make(context, std::make_shared<arena::Segment>(std::move(*segment)), attr.length);
  const std::lock_guard lock(state().mutex);
  known[dm->ibv.handle] = dm;
  return &dm->ibv;
}

base::Result<ibv_dm*> import(ibv_context* context, uint32_t handle) {
  if (auto ok = Context::from(context).open->importable(); !ok) return std::unexpected(ok.error());
  std::shared_ptr<arena::Segment> segment;
  uint64_t length = 0;
  {
    const std::lock_guard lock(state().mutex);
    if (const auto found = known.find(handle); found != known.end()) {
      segment = found->second->segment;
      length = found->second->length;
    }
  }
  if (!segment)
    return base::fail(ENOENT, fmt::format("no device memory of this process has the handle {}", handle));
  auto* dm = make(context, std::move(segment), length);
  dm->imported = true;
  return &dm->ibv;
}

base::Result<void> release(ibv_dm* ibv) {
  Dm& dm = Dm::from(ibv);
  if (dm.regions.load() != 0)
    return base::fail(EBUSY,
                      fmt::format("ibv_free_dm: {} memory regions are registered in it: deregister them "
                                  "first",
                                  dm.regions.load()));
  Context& context = Context::from(ibv->context);
  if (!dm.imported) {
    const std::lock_guard lock(state().mutex);
    known.erase(ibv->handle);
    in_use -= dm.length;
  }
  delete &dm;
  release_context(context);
  return {};
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) noexcept {
  return or_null(guarded([&] { return allocate(context, *attr); }));
}

int free_dm(ibv_dm* dm) noexcept {
  return errno_value(guarded([&] { return release(dm); }));
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_dm* vb_ibv_import_dm(ibv_context* context, uint32_t handle) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::import(context, handle); }));
}
VERBENA_SAME_PROTOTYPE(ibv_import_dm);

VERBENA_ENTRY void vb_ibv_unimport_dm(ibv_dm* dm) noexcept { (void)abi::free_dm(dm); }
VERBENA_SAME_PROTOTYPE(ibv_unimport_dm);
