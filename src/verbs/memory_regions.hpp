// The table of memory regions that this process registered.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "arena/process_arena.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/address_space.hpp"
#include "verbs/null_memory.hpp"

namespace verbena::verbs {

struct RegionRequest {
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t iova = 0;
  uint32_t domain = 0;
  uint32_t access = 0;  // ibv_access_flags
  bool fixed = false;   // change() is refused
};

// All calls are slow path and serialise themselves. lkey and rkey are the same number: table index, then an
// 8-bit tag that changes with each registration, so that an old key is a wrong key.
class MemoryRegions {
 public:
  explicit MemoryRegions(const arena::ProcessArena& arena) : arena_(arena) {}

  // EINVAL: flags that can't be; EFAULT: memory that isn't there or can't be written; ENOMEM: too many.
  [[nodiscard]] base::Result<uint32_t> add(const RegionRequest& request);
  // Zeros to read, nowhere to write, as long as messages can be. For our own requests only.
  [[nodiscard]] base::Result<uint32_t> add_null(uint32_t domain);
  // What changes is what `mask` says (ibv_rereg_mr_flags); the key stays. Waits as remove() does. EINVAL: a
  // key that is gone, a region that stays as it is.
  [[nodiscard]] base::Result<void> change(uint32_t key, int mask, const RegionRequest& request);
  // Waits until nobody accesses the region any more (DESIGN 2.3). EBUSY: windows are bound to it. A key that
  // is gone already, as by another import of the region, stays gone.
  base::Result<void> remove(uint32_t key);
  // The key of a region by what ibv_mr shows as its handle. ENOENT: that domain has none.
  [[nodiscard]] base::Result<uint32_t> find(uint32_t handle, uint32_t domain);

  // Waits for our own threads that are placing messages: they hold a completion queue's lock, no hazard word.
  void set_settle(std::function<void()> settle) { settle_ = std::move(settle); }
  // What our own threads access. Not in the shared segment: a peer's word there could make us wait for
  // ourselves.
  [[nodiscard]] arena::HazardLane& own_lane(unsigned lane) { return own_lanes_.at(lane); }
  // Is that process in the middle of accessing the region?
  [[nodiscard]] bool accesses(uint32_t key, base::Slot by) const;
  // Is the process in that slot still alive? Without an answer everybody is.
  void set_liveness(std::function<bool(base::Slot)> alive) { alive_ = std::move(alive); }

 private:
  friend class MemoryWindows;
  [[nodiscard]] static base::Result<void> check(const RegionRequest& request);
  [[nodiscard]] static base::Result<Backing> inspect(const RegionRequest& request);
  [[nodiscard]] base::Result<uint32_t> claim_region();  // with mutex_ held: its key
  void write(arena::MrEntry& entry, uint8_t tag, const RegionRequest& request, const Backing& backing);
  // With mutex_ held: a place in the table; 0: none is left.
  [[nodiscard]] uint32_t claim();
  // The next key of a place, which differs from the last 255.
  [[nodiscard]] uint32_t next_key(uint32_t index);
  // With mutex_ held: EBUSY while windows are bound to it. From here on nobody begins an access.
  [[nodiscard]] base::Result<void> withdraw(uint32_t index, const char* what);
  void wait_for_accesses(uint32_t index, const char* what = "deregistering a memory region") const;
  [[nodiscard]] bool accessed(uint32_t index, base::Slot& by) const;

  const arena::ProcessArena& arena_;
  std::mutex mutex_;
  std::deque<uint32_t> free_;
  uint32_t next_ = 1;          // index 0 stays unused: key 0 is never valid
  std::vector<uint8_t> tags_;  // the last tag of each index
  uint32_t regions_ = 0;       // that are registered
  std::set<uint32_t> fixed_;   // the indices of those that can't be changed
  std::optional<NullMemory> null_;
  std::map<uint32_t, uint32_t> windows_on_;  // how many are bound to a region, by its index
  uint64_t last_version_ = 0;
  std::array<arena::HazardLane, arena::kHazardLanes> own_lanes_{};
  std::function<bool(base::Slot)> alive_;
  std::function<void()> settle_;
};

}  // namespace verbena::verbs
