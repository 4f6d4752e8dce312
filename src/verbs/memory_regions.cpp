#include "verbs/memory_regions.hpp"

#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <algorithm>

#include "base/explain.hpp"
#include "base/time.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/own_memory.hpp"

namespace verbena::verbs {
namespace {

constexpr uint32_t kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND;
constexpr uint32_t kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kWrites = IBV_ACCESS_LOCAL_WRITE | kNeedsLocalWrite;

// Is it a region's that is registered, neither gone nor a window's?
bool registered(const arena::MrEntry& entry, uint32_t key) {
  const auto tag = static_cast<uint8_t>(entry.word.get());
  return tag != 0 && tag == static_cast<uint8_t>(key) && (entry.access.get() & arena::kWindow) == 0;
}

}  // namespace

base::Result<void> MemoryRegions::check(const RegionRequest& request) {
  const uint32_t flags = request.access & ~static_cast<uint32_t>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((flags & ~kKnownAccess) != 0)
    return base::fail(EINVAL, fmt::format("access flags 0x{:x} have no meaning", flags & ~kKnownAccess));
  if ((flags & kNeedsLocalWrite) != 0 && (flags & IBV_ACCESS_LOCAL_WRITE) == 0)
    return base::fail(
        EINVAL,
        "a region that peers may write to, or run atomics on, must be writable locally too: add "
        "IBV_ACCESS_LOCAL_WRITE");
  return {};
}

base::Result<uint32_t> MemoryRegions::add(const RegionRequest& request) {
  if (auto ok = check(request); !ok) return std::unexpected(ok.error());
  const auto backing = inspect(request);
  if (!backing) return std::unexpected(backing.error());
  const std::lock_guard lock(mutex_);
  const auto key = claim_region();
  if (!key) return key;
  write(arena_.mr(*key >> 8), static_cast<uint8_t>(*key), request, *backing);
  if (request.fixed) fixed_.insert(*key >> 8);
  return key;
}

// On-demand regions are what is mapped when they are used, not now. So nothing is looked at, and peers don't
// map their memory: the program may put other pages there.
base::Result<Backing> MemoryRegions::inspect(const RegionRequest& request) {
  if ((request.access & IBV_ACCESS_ON_DEMAND) == 0)
    return inspect_range(request.address, request.length, (request.access & kWrites) != 0);
  const bool implicit = request.address == 0 && request.length == SIZE_MAX;  // all of the address space
  if (!implicit && request.address + request.length < request.address)
    return base::fail(EINVAL, fmt::format("{} bytes from {:#x} on go past the end of the address space",
                                          request.length, request.address));
  return Backing{};
}

base::Result<uint32_t> MemoryRegions::claim_region() {
  const uint32_t index = regions_ < static_cast<uint32_t>(kMaxMr) ? claim() : 0;
  if (index == 0)
    return base::fail(ENOMEM, fmt::format("{} memory regions are registered already", regions_));
  ++regions_;
  return next_key(index);
}

base::Result<uint32_t> MemoryRegions::add_null(uint32_t domain) {
  const std::lock_guard lock(mutex_);
  if (!null_) {
    auto made = NullMemory::create();
    if (!made) return std::unexpected(made.error());
    null_ = *made;
  }
  const auto key = claim_region();
  if (!key) return key;
  auto& entry = arena_.mr(*key >> 8);
  entry.mode.set(static_cast<uint32_t>(arena::MrMode::kNull));
  entry.file.set(-1);
  entry.inode.set(null_->sink());
  entry.iova.set(0);
  entry.length.set(UINT64_MAX);
  entry.address.set(null_->zeros());
  entry.domain.set(domain);
  entry.access.set(IBV_ACCESS_LOCAL_WRITE);
  entry.word.release(++last_version_ << 8 | (*key & 0xff));
  fixed_.insert(*key >> 8);
  return key;
}

uint32_t MemoryRegions::claim() {
  uint32_t index = 0;
  if (free_.size() > 64 || (next_ == arena::kMrEntries && !free_.empty())) {
    index = free_.front();  // a key just given back rests for a while
    free_.pop_front();
  } else if (next_ < arena::kMrEntries) {
    index = next_++;
    tags_.resize(next_);
  }
  return index;
}

uint32_t MemoryRegions::next_key(uint32_t index) {
  const uint8_t tag = ++tags_[index] == 0 ? ++tags_[index] : tags_[index];
  return index << 8 | tag;
}

base::Result<void> MemoryRegions::withdraw(uint32_t index, const char* what) {
  if (const auto windows = windows_on_.find(index); windows != windows_on_.end())
    return base::fail(EBUSY,
                      fmt::format("{}: {} memory windows are bound to the region: unbind, invalidate or "
                                  "deallocate them first",
                                  what, windows->second));
  arena_.mr(index).word.atomic().store(0);  // with its fence
  ProofStamp::forget_all();
  return {};
}

void MemoryRegions::write(arena::MrEntry& entry, uint8_t tag, const RegionRequest& request,
                          const Backing& backing) {
  // Peers map shared memory only where it can't be cut off under them: a SIGBUS would be their end.
  const bool mapped = backing.mappable() && backing.fixed_size;
  entry.mode.set(static_cast<uint32_t>(mapped ? arena::MrMode::kFile : arena::MrMode::kPrivate));
  entry.file.set(backing.fd);
  entry.inode.set(backing.inode);
  entry.file_offset.set(backing.offset);
  entry.iova.set(request.iova);
  entry.length.set(request.length);
  entry.address.set(request.address);
  entry.domain.set(request.domain);
  entry.access.set(request.access);
  entry.word.release(++last_version_ << 8 | tag);
}

base::Result<void> MemoryRegions::change(uint32_t key, int mask, const RegionRequest& request) {
  const uint32_t index = key >> 8;
  auto& entry = arena_.mr(index);
  const auto may_change = [&]() -> base::Result<void> {
    if (!registered(entry, key))
      return base::fail(EINVAL,
                        fmt::format("ibv_rereg_mr: the region with key 0x{:x} was deregistered, maybe by "
                                    "another import of it",
                                    key));
    if (fixed_.contains(index))
      return base::fail(EINVAL, "ibv_rereg_mr: null regions and those of device memory stay as they are");
    return {};
  };
  {
    const std::lock_guard lock(mutex_);
    if (auto ok = may_change(); !ok) return ok;
  }
  RegionRequest changed{.address = entry.address.get(),
                        .length = entry.length.get(),
                        .iova = entry.iova.get(),
                        .domain = entry.domain.get(),
                        .access = entry.access.get()};
  if ((mask & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    changed.address = request.address;
    changed.length = request.length;
    changed.iova = request.iova;
  }
  if ((mask & IBV_REREG_MR_CHANGE_PD) != 0) changed.domain = request.domain;
  if ((mask & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    const bool counted_from_zero = (changed.access & IBV_ACCESS_ZERO_BASED) != 0;
    changed.access = request.access;
    if (counted_from_zero && (mask & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) changed.iova = changed.address;
  }
  if ((changed.access & IBV_ACCESS_ZERO_BASED) != 0) changed.iova = 0;
  if (auto ok = check(changed); !ok) return ok;
  const auto backing = inspect(changed);
  if (!backing) return std::unexpected(backing.error());
  {
    const std::lock_guard lock(mutex_);
    if (auto ok = may_change(); !ok) return ok;
    if (auto ok = withdraw(index, "ibv_rereg_mr"); !ok) return ok;
  }
  if (settle_) settle_();
  wait_for_accesses(index);  // without the lock: who keeps us waiting doesn't keep others from registering
  const std::lock_guard lock(mutex_);
  write(entry, static_cast<uint8_t>(key), changed, *backing);
  return {};
}

base::Result<void> MemoryRegions::remove(uint32_t key) {
  const uint32_t index = key >> 8;
  {
    const std::lock_guard lock(mutex_);
    if (!registered(arena_.mr(index), key)) return {};
    if (auto ok = withdraw(index, "ibv_dereg_mr"); !ok) return ok;
  }
  if (settle_) settle_();
  wait_for_accesses(index);
  const std::lock_guard lock(mutex_);
  --regions_;
  fixed_.erase(index);
  free_.push_back(index);
  return {};
}

bool MemoryRegions::accesses(uint32_t key, base::Slot by) const {
  const auto names = [&](const arena::HazardLane& lane) {
    return std::ranges::any_of(lane.regions,
                               [&](const auto& region) { return region.acquire() == (key >> 8) + 1; });
  };
  if (by.value == arena_.head().slot.load() && std::ranges::any_of(own_lanes_, names)) return true;
  for (unsigned lane = 0; lane < arena::kHazardLanes; ++lane)
    if (names(arena_.hazards(by, lane))) return true;
  return false;
}

base::Result<uint32_t> MemoryRegions::find(uint32_t handle, uint32_t domain) {
  const std::lock_guard lock(mutex_);
  const bool known = handle != 0 && handle < next_;
  const uint32_t key = known ? handle << 8 | static_cast<uint8_t>(arena_.mr(handle).word.get()) : 0;
  if (!known || !registered(arena_.mr(handle), key) || arena_.mr(handle).domain.get() != domain)
    return base::fail(ENOENT, fmt::format("no memory region with handle {} is in this domain", handle));
  return key;
}

bool MemoryRegions::accessed(uint32_t index, base::Slot& by) const {
  const auto names = [&](const arena::HazardLane& lane) {
    return std::ranges::any_of(lane.regions,
                               [&](const auto& region) { return region.acquire() == index + 1; });
  };
  const base::Slot own{static_cast<uint8_t>(arena_.head().slot.load())};
  if (std::ranges::any_of(own_lanes_, names)) {
    by = own;
    return true;
  }
  for (unsigned word = 0; word < 4; ++word) {
    uint64_t users = arena_.rings_head().hazard_users[word].acquire();
    for (; users != 0; users &= users - 1) {
      const auto slot = static_cast<uint8_t>(word * 64 + static_cast<unsigned>(__builtin_ctzll(users)));
      if (slot == own.value) continue;
      for (unsigned lane = 0; lane < arena::kHazardLanes; ++lane)
        if (names(arena_.hazards({slot}, lane)) && (!alive_ || alive_({slot}))) {
          by = {slot};
          return true;
        }
    }
  }
  return false;
}

void MemoryRegions::wait_for_accesses(uint32_t index, const char* what) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const base::Instant begin = base::now();
  bool said = false;
  base::Slot by;
  while (accessed(index, by)) {
    ::poll(nullptr, 0, said ? 10 : 0);
    if (!said && base::now() - begin > base::seconds(1)) {
      said = true;
      base::explain(
          fmt::format("{} waits for the process in slot {}, which is in the "
                      "middle of accessing it and doesn't go on (is it stopped?)",
                      what, by.value));
    }
  }
}

}  // namespace verbena::verbs
