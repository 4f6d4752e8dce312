#include "agent/slot_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::agent {

using arena::SlotState;
using arena::SlotWord;
using base::Slot;

namespace {

constexpr unsigned kLargestLease = 32;
constexpr uint32_t kLastEpoch = 0xffffff;
// A corrupt or absurd time-wait in a process's tables must not lock its slot away for hours.
constexpr base::Duration kLongestQuarantine = base::seconds(60);

Slot slot_at(unsigned number) { return {static_cast<uint8_t>(number)}; }

}  // namespace

SlotTable::SlotTable(const arena::Registry& registry, uint64_t start)
    : registry_(registry),
      next_(base::kFirstProcessSlot + static_cast<unsigned>(start % base::kMaxProcessSlots)) {}

SlotWord SlotTable::word(Slot slot) const {
  return SlotWord::unpack(registry_.slot(slot).word.load(std::memory_order_acquire));
}

Owner SlotTable::owner(Slot slot) const {
  const auto& record = registry_.slot(slot);
  return {word(slot).pid, record.start_ticks.load(std::memory_order_relaxed),
          record.uid.load(std::memory_order_relaxed), record.view.load(std::memory_order_relaxed)};
}

bool SlotTable::is_free(unsigned slot) const { return word(slot_at(slot)).state == SlotState::kFree; }

void SlotTable::assign(Slot slot, SlotState state, const Owner& owner) {
  auto& record = registry_.slot(slot);
  record.start_ticks.store(owner.start_ticks, std::memory_order_relaxed);
  record.uid.store(owner.uid, std::memory_order_relaxed);
  record.view.store(owner.view, std::memory_order_relaxed);
  const SlotWord next{state, word(slot).epoch + 1, owner.pid};
  record.word.store(next.pack(), std::memory_order_release);  // publishes
}

base::Result<Claim> SlotTable::claim(base::Instant now, const Owner& owner) {
  expire(now);
  // Rotating: a slot is reused as late as possible.
  for (unsigned i = 0; i < base::kMaxProcessSlots; ++i) {
    const unsigned candidate =
        base::kFirstProcessSlot + (next_ - base::kFirstProcessSlot + i) % base::kMaxProcessSlots;
    if (!range_.contains(candidate) || !is_free(candidate)) continue;
    next_ = candidate + 1;
    assign(slot_at(candidate), SlotState::kActive, owner);
    return Claim{slot_at(candidate), word(slot_at(candidate)).epoch};
  }
  const auto in_range = [this](SlotState state) {
    return std::ranges::count_if(in_state(state), [this](Slot s) { return range_.contains(s.value); });
  };
  const auto quarantined = in_range(SlotState::kQuarantined);
  const auto leased = in_range(SlotState::kLeased);
  return base::fail(
      ENOMEM, fmt::format("no free slot: of the {} processes that can use RDMA on this host at the "
                          "same time {} do{}, and {} slots of ended ones are still in quarantine; "
                          "end some programs{}",
                          range_.count, in_range(SlotState::kActive),
                          leased > 0 ? fmt::format(", {} are leased to other users' agents", leased) : "",
                          quarantined, quarantined > 0 ? " or try again in a moment" : ""));
}

base::Result<Claim> SlotTable::resume(Claim claim, const Owner& owner) {
  const unsigned number = claim.slot.value;
  if (number < base::kFirstProcessSlot || number > base::kLastProcessSlot)
    return base::fail(EINVAL, fmt::format("slot {} is not one that a process can have", number));
  if (claim.epoch >= kLastEpoch) return base::fail(EINVAL, "that epoch was never given");
  const SlotWord held = word(claim.slot);
  const bool same_user = registry_.slot(claim.slot).uid.load(std::memory_order_relaxed) == owner.uid;
  if (held.state == SlotState::kActive && held.epoch == claim.epoch && same_user) {
    // The pid may differ only because agents of two pid namespaces number it differently.
    auto& record = registry_.slot(claim.slot);
    record.view.store(owner.view, std::memory_order_relaxed);
    record.start_ticks.store(owner.start_ticks, std::memory_order_relaxed);
    record.word.store(SlotWord{held.state, held.epoch, owner.pid}.pack(), std::memory_order_release);
    return claim;
  }
  if (held.state == SlotState::kFree && range_.contains(number)) {
    // Past both what we gave and what it was given elsewhere: no epoch comes twice.
    const uint32_t epoch = std::max(held.epoch, claim.epoch);
    registry_.slot(claim.slot)
        .word.store(SlotWord{SlotState::kFree, epoch, 0}.pack(), std::memory_order_release);
    assign(claim.slot, SlotState::kActive, owner);
    return Claim{claim.slot, word(claim.slot).epoch};
  }
  return base::fail(EBUSY, fmt::format("slot {} went to somebody else while no agent ran", number));
}

void SlotTable::release(Slot slot, base::Instant now, base::Duration timewait) {
  auto& record = registry_.slot(slot);
  timewait = std::clamp(timewait, base::Duration(0), kLongestQuarantine);
  record.reusable_at_ns.store((now + timewait).ns, std::memory_order_relaxed);
  const SlotState next = timewait.count() == 0 ? SlotState::kFree : SlotState::kQuarantined;
  record.word.store(SlotWord{next, word(slot).epoch, 0}.pack(), std::memory_order_release);
}

void SlotTable::expire(base::Instant now) {
  for (const Slot slot : in_state(SlotState::kQuarantined)) {
    auto& record = registry_.slot(slot);
    if (record.reusable_at_ns.load(std::memory_order_relaxed) <= now.ns)
      record.word.store(SlotWord{SlotState::kFree, word(slot).epoch, 0}.pack(), std::memory_order_release);
  }
}

std::optional<base::Instant> SlotTable::next_deadline() const {
  std::optional<base::Instant> next;
  for (const Slot slot : in_state(SlotState::kQuarantined)) {
    const base::Instant end{registry_.slot(slot).reusable_at_ns.load(std::memory_order_relaxed)};
    if (!next || end < *next) next = end;
  }
  return next;
}

base::Result<SlotRange> SlotTable::lease(SlotRange wanted, const Owner& lessee) {
  const auto grant = [&](SlotRange range) {
    for (unsigned s = range.first; s < range.first + range.count; ++s)
      assign(slot_at(s), SlotState::kLeased, lessee);
    return range;
  };
  if (wanted.count != 0) {
    if (wanted.first < base::kFirstProcessSlot || wanted.first > base::kLastProcessSlot ||
        wanted.count > kLargestLease || wanted.count > base::kLastProcessSlot - wanted.first + 1)
      return base::fail(EINVAL,
                        fmt::format("slots {} and {} following are no range", wanted.first, wanted.count));
    for (unsigned s = wanted.first; s < wanted.first + wanted.count; ++s) {
      const bool theirs = word(slot_at(s)).state == SlotState::kLeased && owner(slot_at(s)).uid == lessee.uid;
      if (!theirs && !is_free(s)) return base::fail(EBUSY, fmt::format("slot {} is in use", s));
    }
    return grant(wanted);
  }
  // From the top: the owner's own processes rotate through all of them, so any run may be the longest.
  for (unsigned size = kLargestLease; size > 0; size /= 2)
    for (unsigned first = base::kLastProcessSlot - size + 1; first >= base::kFirstProcessSlot; --first) {
      bool all_free = true;
      for (unsigned s = first; s < first + size && all_free; ++s) all_free = is_free(s);
      if (all_free) return grant({first, size});
    }
  return base::fail(ENOMEM, "no slot of the port owner's is free to lease");
}

void SlotTable::end_lease(SlotRange range, base::Instant now, base::Duration timewait) {
  for (unsigned s = range.first; s < range.first + range.count; ++s)
    if (word(slot_at(s)).state == SlotState::kLeased) release(slot_at(s), now, timewait);
}

std::vector<Slot> SlotTable::in_state(SlotState state) const {
  std::vector<Slot> slots;
  for (unsigned s = base::kFirstProcessSlot; s <= base::kLastProcessSlot; ++s)
    if (word(slot_at(s)).state == state) slots.push_back(slot_at(s));
  return slots;
}

}  // namespace verbena::agent
