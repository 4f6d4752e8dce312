// A second ibv_mr for a region that this process registered, by its handle.
#include "abi/abi.hpp"
#include "abi/objects.hpp"

namespace verbena::abi {
namespace {

// Its address isn't known from the handle, and stays NULL as the man page says.
base::Result<ibv_mr*> import(ibv_pd* pd, uint32_t handle) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  if (auto ok = context.open->importable(); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  const auto key = (*data)->process().regions().find(handle, domain->handle());
  if (!key) return std::unexpected(key.error());
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  auto* mr = new Mr;
  mr->ibv = {.context = pd->context,
             .pd = pd,
             .addr = nullptr,
             .length = 0,
             .handle = handle,
             .lkey = *key,
             .rkey = *key};
  // Peers have no key of a null region.
  const auto mode = (*data)->process().arena().mr(handle).mode.get();
  if (mode == static_cast<uint32_t>(arena::MrMode::kNull)) mr->ibv.rkey = 0;
  mr->domain = std::move(domain);
  mr->data = std::move(*data);
  hold_context(context);
  return &mr->ibv;
}

// The region itself stays.
void unimport(ibv_mr* ibv) {
  Context& context = Context::from(ibv->context);
  Mr::from(ibv).domain->release();
  delete &Mr::from(ibv);
  release_context(context);
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_mr* vb_ibv_import_mr(ibv_pd* pd, uint32_t handle) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::import(pd, handle); }));
}
VERBENA_SAME_PROTOTYPE(ibv_import_mr);

VERBENA_ENTRY void vb_ibv_unimport_mr(ibv_mr* mr) noexcept { abi::unimport(mr); }
VERBENA_SAME_PROTOTYPE(ibv_unimport_mr);
