// Protection domains.
#include "abi/abi.hpp"
#include "abi/process_state.hpp"

namespace verbena::abi {
namespace {

// The caller holds state().mutex.
ibv_pd* make_pd(ibv_context* context, std::shared_ptr<verbs::ProtectionDomain> domain) {
  auto* pd = new Pd;
  pd->ibv.context = context;
  pd->ibv.handle = domain->handle();
  pd->domain = std::move(domain);
  ++Context::from(context).references;
  return &pd->ibv;
}

void free_pd(ibv_pd* pd) {
  Context& context = Context::from(pd->context);
  delete &Pd::from(pd);
  release_context(context);
}

base::Result<ibv_pd*> allocate(ibv_context* context) {
  const Context& ours = Context::from(context);
  if (auto ok = ours.usable(); !ok) return std::unexpected(ok.error());
  ProcessState& process = state();
  const std::lock_guard lock(process.mutex);
  auto domain = process.domains.allocate(ours.device->ibv.name);
  if (!domain) return std::unexpected(domain.error());
  return make_pd(context, std::move(*domain));
}

base::Result<ibv_pd*> import(ibv_context* context, uint32_t handle) {
  const Context& ours = Context::from(context);
  if (auto ok = ours.usable(); !ok) return std::unexpected(ok.error());
  if (auto ok = ours.open->importable(); !ok) return std::unexpected(ok.error());
  ProcessState& process = state();
  const std::lock_guard lock(process.mutex);
  auto domain = process.domains.find(ours.device->ibv.name, handle);
  if (!domain) return std::unexpected(domain.error());
  return make_pd(context, std::move(*domain));
}

base::Result<void> deallocate(ibv_pd* pd) {
  if (auto ok = Context::from(pd->context).usable(); !ok) return ok;
  if (Pd::from(pd).parent != nullptr) return free_parent_domain(pd);
  {
    ProcessState& process = state();
    const std::lock_guard lock(process.mutex);
    if (auto done = process.domains.deallocate(*Pd::from(pd).domain); !done) return done;
  }
  free_pd(pd);
  return {};
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_pd* vb_ibv_alloc_pd(ibv_context* context) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::allocate(context); }));
}
VERBENA_SAME_PROTOTYPE(ibv_alloc_pd);

VERBENA_ENTRY int vb_ibv_dealloc_pd(ibv_pd* pd) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::deallocate(pd); }));
}
VERBENA_SAME_PROTOTYPE(ibv_dealloc_pd);

VERBENA_ENTRY ibv_pd* vb_ibv_import_pd(ibv_context* context, uint32_t pd_handle) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::import(context, pd_handle); }));
}
VERBENA_SAME_PROTOTYPE(ibv_import_pd);

VERBENA_ENTRY void vb_ibv_unimport_pd(ibv_pd* pd) noexcept { abi::free_pd(pd); }
VERBENA_SAME_PROTOTYPE(ibv_unimport_pd);
