#include "verbs/advise_regions.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/page_size.hpp"
#include "verbs/key_check.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena::verbs {
namespace {

using engine::Verdict;

bool is_window(const arena::ProcessArena& arena, uint32_t key) {
  if (key >> 8 >= arena::kMrEntries) return false;
  const auto& entry = arena.mr(key >> 8);
  return (entry.word.acquire() & 0xff) == (key & 0xff) && (entry.access.get() & arena::kWindow) != 0;
}

// The region's own flags, which check_key() doesn't tell.
base::Result<void> check_region(const arena::MrEntry& entry, uint32_t key) {
  const uint32_t access = entry.access.get();
  if ((access & arena::kWindow) != 0 || (access & IBV_ACCESS_ON_DEMAND) == 0)
    return base::fail(EINVAL,
                      fmt::format("ibv_advise_mr: key 0x{:x} isn't one of a region that was registered "
                                  "with IBV_ACCESS_ON_DEMAND",
                                  key));
  return {};
}

// 0, or the errno that a fault would be.
int populate(uint64_t address, uint64_t length, bool writable) {
  const uint64_t page = base::page_size();
  const uint64_t first = address & ~(page - 1);
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (::madvise(reinterpret_cast<void*>(first), address + length - first, advice) == 0) return 0;
  return errno == EINVAL ? 0 : EFAULT;  // a kernel that has no such advice has done its best
}

}  // namespace

base::Result<void> advise_regions(const arena::ProcessArena& arena, uint32_t domain,
                                  ibv_advise_mr_advice advice, uint32_t flags,
                                  std::span<const ibv_sge> ranges) {
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
    return base::fail(EOPNOTSUPP, fmt::format("ibv_advise_mr: there is no advice {}", int{advice}));
  const bool waits = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || ranges.empty())
    return base::fail(EINVAL, "ibv_advise_mr: it takes IBV_ADVISE_MR_FLAG_FLUSH or no flag, and ranges");
  const bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  for (const ibv_sge& range : ranges) {
    Region region;
    const uint32_t access = writable ? IBV_ACCESS_LOCAL_WRITE : 0;
    const Verdict verdict = check_key(arena, {range.lkey, range.addr, range.length, domain, access}, region);
    if (verdict == Verdict::kBadKey && !is_window(arena, range.lkey))
      return base::fail(ENOENT, fmt::format("ibv_advise_mr: key 0x{:x} names no memory region", range.lkey));
    if (verdict == Verdict::kWrongDomain || verdict == Verdict::kNoAccess)
      return base::fail(EPERM, fmt::format("ibv_advise_mr: the region of key 0x{:x} is in another protection "
                                           "domain, or without IBV_ACCESS_LOCAL_WRITE",
                                           range.lkey));
    if (auto ok = check_region(arena.mr(region.index), range.lkey); !ok) return ok;
    const bool fits = verdict == Verdict::kDone;
    const bool skips = range.length == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    const int error = !fits ? EFAULT : skips ? 0 : populate(region.address, range.length, writable);
    if (error != 0 && (waits || !fits))
      return base::fail(error, fmt::format("ibv_advise_mr: {} bytes at 0x{:x} aren't wholly in the region of "
                                           "key 0x{:x}, or not mapped",
                                           range.length, range.addr, range.lkey));
  }
  return {};
}

}  // namespace verbena::verbs
