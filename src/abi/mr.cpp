// Memory regions.
#include <fmt/format.h>

#include <functional>

#include "abi/abi.hpp"
#include "abi/mr_kinds.hpp"
#include "abi/process_state.hpp"

// The header replaces these by inline functions that call them.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace verbena::abi {

base::Result<Mr*> make_region(
    ibv_pd* pd, const std::function<base::Result<uint32_t>(verbs::MemoryRegions&, uint32_t)>& add) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  const auto key = add((*data)->process().regions(), domain->handle());
  if (!key) {
    domain->release();
    return std::unexpected(key.error());
  }
  auto* mr = new Mr;
  mr->ibv = {.context = pd->context, .pd = pd, .handle = *key >> 8, .lkey = *key, .rkey = *key};
  mr->domain = std::move(domain);
  mr->data = std::move(*data);
  hold_context(context);
  return mr;
}

namespace {

base::Result<ibv_mr*> register_region(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                      unsigned access) {
  const auto made = make_region(pd, [&](verbs::MemoryRegions& regions, uint32_t domain) {
    return regions.add({.address = reinterpret_cast<uint64_t>(address),
                        .length = length,
                        .iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova,
                        .domain = domain,
                        .access = access});
  });
  if (!made) return std::unexpected(made.error());
  (*made)->ibv.addr = address;
  (*made)->ibv.length = length;
  return &(*made)->ibv;
}

base::Result<void> deregister(ibv_mr* ibv) {
  Context& context = Context::from(ibv->context);
  Mr& mr = Mr::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (auto done = mr.data->process().deregister(ibv->lkey); !done) return done;
  mr.domain->release();
  if (mr.dm != nullptr) --mr.dm->regions;
  delete &mr;
  release_context(context);
  return {};
}

base::Result<void> reregister(ibv_mr* ibv, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  Mr& mr = Mr::from(ibv);
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || flags == 0)
    return base::fail(EINVAL, fmt::format("ibv_rereg_mr: flags 0x{:x} have no meaning", flags));
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  if (moves && (address == nullptr || length == 0))
    return base::fail(EINVAL, "ibv_rereg_mr: changing the translation needs an address and a length");
  if (changes_domain && pd == nullptr)
    return base::fail(EINVAL, "ibv_rereg_mr: changing the domain needs one");
  std::shared_ptr<verbs::ProtectionDomain> domain = changes_domain ? Pd::from(pd).domain : mr.domain;
  if (changes_domain && !domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  const auto changed = mr.data->process().reregister(ibv->lkey, flags,
                                                     {.address = reinterpret_cast<uint64_t>(address),
                                                      .length = length,
                                                      .iova = reinterpret_cast<uint64_t>(address),
                                                      .domain = domain->handle(),
                                                      .access = static_cast<uint32_t>(access)});
  if (!changed) {
    if (changes_domain) domain->release();
    return changed;
  }
  if (changes_domain) {
    mr.domain->release();
    mr.domain = std::move(domain);
    ibv->pd = pd;
  }
  if (moves) {
    ibv->addr = address;
    ibv->length = length;
  }
  return {};
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_mr* vb_ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) noexcept {
  const auto iova = reinterpret_cast<uint64_t>(addr);
  return abi::or_null(abi::guarded(
      [&] { return abi::register_region(pd, addr, length, iova, static_cast<unsigned>(access)); }));
}
VERBENA_SAME_PROTOTYPE(ibv_reg_mr);

VERBENA_ENTRY ibv_mr* vb_ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                         int access) noexcept {
  return abi::or_null(abi::guarded(
      [&] { return abi::register_region(pd, addr, length, iova, static_cast<unsigned>(access)); }));
}
VERBENA_SAME_PROTOTYPE(ibv_reg_mr_iova);

VERBENA_ENTRY ibv_mr* vb_ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                          unsigned access) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::register_region(pd, addr, length, iova, access); }));
}
VERBENA_SAME_PROTOTYPE(ibv_reg_mr_iova2);

VERBENA_ENTRY int vb_ibv_dereg_mr(ibv_mr* mr) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::deregister(mr); }));
}
VERBENA_SAME_PROTOTYPE(ibv_dereg_mr);

// Its errors are ibv_rereg_mr_err_code, with errno: the input was wrong and nothing changed, or it could not
// be done and nothing changed.
VERBENA_ENTRY int vb_ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                                  int access) noexcept {
  const auto done = abi::guarded([&] { return abi::reregister(mr, flags, pd, addr, length, access); });
  if (done) return 0;
  errno = abi::explained(done.error());
  return errno == EINVAL ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
}
VERBENA_SAME_PROTOTYPE(ibv_rereg_mr);
