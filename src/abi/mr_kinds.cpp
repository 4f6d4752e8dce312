// Memory regions that aren't plain memory of the program's, and advice on those that are.
#include "abi/mr_kinds.hpp"

#include "abi/entries.hpp"
#include "verbs/advise_regions.hpp"

namespace verbena::abi {
namespace {

base::Result<ibv_mr*> make_null(ibv_pd* pd) {
  const auto made = make_region(
      pd, [](verbs::MemoryRegions& regions, uint32_t domain) { return regions.add_null(domain); });
  if (!made) return std::unexpected(made.error());
  Mr& mr = **made;
  mr.ibv.length = SIZE_MAX;
  mr.ibv.rkey = 0;  // for the program's own requests only
  return &mr.ibv;
}

base::Result<ibv_mr*> register_device_memory(ibv_pd* pd, ibv_dm* ibv, uint64_t offset, size_t length,
                                             unsigned access) {
  Dm& dm = Dm::from(ibv);
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || (access & IBV_ACCESS_ON_DEMAND) != 0)
    return base::fail(
        EINVAL,
        "ibv_reg_dm_mr: device memory has no address, so it needs IBV_ACCESS_ZERO_BASED, and has "
        "no pages to fault in");
  if (offset > dm.length || length > dm.length - offset)
    return base::fail(EINVAL, "ibv_reg_dm_mr: the range goes past the end of the device memory");
  const auto made = make_region(pd, [&](verbs::MemoryRegions& regions, uint32_t domain) {
    return regions.add({.address = reinterpret_cast<uint64_t>(dm.segment->mapping.data()) + offset,
                        .length = length,
                        .iova = 0,
                        .domain = domain,
                        .access = access,
                        .fixed = true});
  });
  if (!made) return std::unexpected(made.error());
  Mr& mr = **made;
  mr.dm = &dm;
  ++dm.regions;
  mr.ibv.length = length;
  return &mr.ibv;
}

base::Result<void> advise(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* ranges,
                          uint32_t count) {
  if (auto ok = Context::from(pd->context).usable(); !ok) return ok;
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  return verbs::advise_regions((*data)->process().arena(), Pd::from(pd).domain->handle(), advice, flags,
                               {ranges, count});
}

}  // namespace

ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept {
  return or_null(guarded([&] { return make_null(pd); }));
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) noexcept {
  return or_null(guarded([&] { return register_device_memory(pd, dm, offset, length, access); }));
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* ranges,
              uint32_t count) noexcept {
  return errno_value(guarded([&] { return advise(pd, advice, flags, ranges, count); }));
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_mr* vb_ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) noexcept {
  return abi::or_null(base::Result<ibv_mr*>(base::fail(
      EOPNOTSUPP,
      "ibv_reg_dmabuf_mr: a dma-buf is another device's memory, which software can't copy; map it and "
      "register the mapping if the device lets you")));
}
VERBENA_SAME_PROTOTYPE(ibv_reg_dmabuf_mr);
