// Which process has which slot. Works on the registry, so that its state outlives the agent; opens nothing,
// reads no clock: time is an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arena/registry.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace verbena::agent {

struct Owner {
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t uid = 0;
  uint32_t view = 0;
};

struct Claim {
  base::Slot slot;
  uint32_t epoch = 0;
};

struct SlotRange {
  unsigned first = base::kFirstProcessSlot;
  unsigned count = base::kMaxProcessSlots;
  [[nodiscard]] bool contains(unsigned slot) const { return slot >= first && slot < first + count; }
  bool operator==(const SlotRange&) const = default;
};

class SlotTable {
 public:
  // `start` is where the rotation begins: random, so that a new agent doesn't reuse its predecessor's last
  // slots.
  SlotTable(const arena::Registry& registry, uint64_t start);

  // Only slots of this range are given out; what is held outside it stays held.
  void limit_to(SlotRange range) { range_ = range; }
  [[nodiscard]] SlotRange range() const { return range_; }

  // ENOMEM when every slot is held or in quarantine.
  [[nodiscard]] base::Result<Claim> claim(base::Instant now, const Owner& owner);
  // What an earlier agent gave. Also where the registry was lost and the slot is free here. EBUSY: others
  // have it.
  [[nodiscard]] base::Result<Claim> resume(Claim claim, const Owner& owner);
  // Quarantined for `timewait`: packets for the old owner's queue pairs may still be under way.
  void release(base::Slot slot, base::Instant now, base::Duration timewait);
  // Ends quarantines that are over.
  void expire(base::Instant now);
  [[nodiscard]] std::optional<base::Instant> next_deadline() const;

  // A run of free slots for another user's agent. `wanted.count` 0: as many as can be had, 32 at most; else
  // exactly that range, which must be free or leased to the same uid.
  [[nodiscard]] base::Result<SlotRange> lease(SlotRange wanted, const Owner& lessee);
  void end_lease(SlotRange range, base::Instant now, base::Duration timewait);

  [[nodiscard]] arena::SlotWord word(base::Slot slot) const;
  [[nodiscard]] Owner owner(base::Slot slot) const;
  [[nodiscard]] std::vector<base::Slot> in_state(arena::SlotState state) const;

 private:
  void assign(base::Slot slot, arena::SlotState state, const Owner& owner);
  [[nodiscard]] bool is_free(unsigned slot) const;

  const arena::Registry& registry_;
  SlotRange range_;
  unsigned next_;
};

}  // namespace verbena::agent
