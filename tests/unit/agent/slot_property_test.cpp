// Whatever happens in whatever order, a slot has one owner at most, and none before its quarantine is over.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "slots.hpp"

namespace verbena::agent {
namespace {

// What should be so, kept beside the table under test. Owners are numbers: processes below 100'000, users
// above.
struct Model {
  std::map<unsigned, uint32_t> owner_of;           // by slot
  std::map<unsigned, Instant> quarantined_to;      // by slot
  std::vector<std::pair<uint32_t, Claim>> claims;  // the last one of each process, which it may hold no more
  Instant now = kStart;
  uint32_t processes = 0;

  [[nodiscard]] bool is_free(unsigned slot) const {
    const auto quarantine = quarantined_to.find(slot);
    return !owner_of.contains(slot) && (quarantine == quarantined_to.end() || quarantine->second <= now);
  }
  void take(unsigned slot, uint32_t owner) {
    ASSERT_TRUE(is_free(slot)) << "slot " << slot << " for " << owner;
    owner_of[slot] = owner;
  }
  void leave(unsigned slot, base::Duration timewait) {
    owner_of.erase(slot);
    quarantined_to[slot] = now + timewait;
  }
};

class Life {
 public:
  explicit Life(uint32_t seed) : random_(seed) { table_.emplace(registry_, random_()); }

  void step() {
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return claim();
      case 4:
      case 5:
        return release();
      case 6:
        return resume();
      case 7:
        return below(4) == 0 ? lease() : end_lease();
      case 8:
        model_.now = model_.now + milliseconds(below(2000));
        if (below(2) == 0) table_->expire(model_.now);
        return;
      default:
        if (below(8) == 0) table_.emplace(registry_, random_());  // the agent dies, another goes on
    }
  }

  void check() {
    for (unsigned slot = 1; slot <= 250; ++slot) {
      const auto state = table_->word(slot_at(slot)).state;
      const auto owner = model_.owner_of.find(slot);
      const bool held = state == SlotState::kActive || state == SlotState::kLeased;
      ASSERT_EQ(owner != model_.owner_of.end(), held) << "slot " << slot;
      if (!held) continue;
      ASSERT_EQ(owner->second < 100'000 ? SlotState::kActive : SlotState::kLeased, state) << "slot " << slot;
      const Owner seen = table_->owner(slot_at(slot));
      ASSERT_EQ(owner->second, state == SlotState::kActive ? seen.pid : 100'000 + seen.uid)
          << "slot " << slot;
    }
  }

 private:
  uint32_t below(size_t end) { return static_cast<uint32_t>(random_() % end); }
  base::Duration timewait() { return below(3) == 0 ? milliseconds(0) : milliseconds(below(8000)); }

  void claim() {
    const uint32_t pid = ++model_.processes;
    const auto claim = table_->claim(model_.now, process(pid));
    if (!claim) {
      for (unsigned slot = 1; slot <= 250; ++slot) ASSERT_FALSE(model_.is_free(slot)) << "slot " << slot;
      return;
    }
    model_.take(claim->slot.value, pid);
    model_.claims.emplace_back(pid, *claim);
  }

  void release() {
    std::vector<unsigned> held;
    for (const auto& [slot, owner] : model_.owner_of)
      if (owner < 100'000) held.push_back(slot);
    if (held.empty()) return;
    const unsigned slot = held[below(held.size())];
    const auto wait = timewait();
    table_->release(slot_at(slot), model_.now, wait);
    model_.leave(slot, wait);
  }

  void resume() {
    if (model_.claims.empty()) return;
    auto& [pid, known] = model_.claims[below(model_.claims.size())];
    const unsigned slot = known.slot.value;
    const bool holds_it = model_.owner_of.contains(slot) && model_.owner_of[slot] == pid;
    const auto resumed = table_->resume(known, process(pid));
    ASSERT_TRUE(resumed || !holds_it) << "slot " << slot;
    if (!resumed) return;
    ASSERT_EQ(known.slot, resumed->slot);
    if (!holds_it) model_.take(slot, pid);
    known = *resumed;
  }

  void lease() {
    const uint32_t uid = 1 + below(3);
    SlotRange wanted{0, 0};
    if (below(2) == 0) wanted = {1 + below(250), 1 + below(40)};
    const auto range = table_->lease(wanted, agent_of(uid));
    if (!range) return;
    for (unsigned slot = range->first; slot < range->first + range->count; ++slot) {
      const auto owner = model_.owner_of.find(slot);
      if (owner == model_.owner_of.end() || owner->second != 100'000 + uid) model_.take(slot, 100'000 + uid);
    }
  }

  void end_lease() {
    const auto leased = table_->in_state(SlotState::kLeased);
    if (leased.empty()) return;
    const SlotRange range{leased[below(leased.size())].value, 1};
    const auto wait = timewait();
    table_->end_lease(range, model_.now, wait);
    model_.leave(range.first, wait);
  }

  arena::Registry registry_ = std::move(arena::Registry::create("test")->second);
  std::mt19937 random_;
  std::optional<SlotTable> table_;
  Model model_;
};

TEST(SlotProperty, NoSlotEverHasTwoOwnersOver200Seeds) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Life life(seed);
    for (int i = 0; i < 600; ++i) {
      life.step();
      if (i % 20 == 0) life.check();
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << i;
    }
    life.check();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace verbena::agent
