#include "verbs/queue_owner.hpp"

#include <sched.h>

namespace verbena::verbs {

std::shared_ptr<DeliveryPort> QueueOwner::port(uint64_t offset, uint32_t id, arena::RingShape shape) {
  if (!shape.sane()) return nullptr;
  std::byte* memory = arena_.in_rings_heap(offset, shape.size());
  if (memory == nullptr) return nullptr;
  const std::lock_guard lock(ports_mutex_);
  if (const auto known = ports_.find({offset, id}); known != ports_.end()) return known->second;
  // Another ring at the same place: the one before it was given back.
  std::erase_if(ports_, [&](const auto& port) { return port.first.first == offset; });
  return ports_[{offset, id}] = std::make_shared<DeliveryPort>(memory, shape);
}

unsigned QueueOwner::claim_lane(AccessSide side) {
  constexpr unsigned kEach = arena::kHazardLanes / 2;
  const unsigned first = side == AccessSide::kTarget ? 0 : kEach;
  for (unsigned tries = 0;; ++tries) {
    uint32_t used = lanes_in_use_.load(std::memory_order_relaxed);
    for (unsigned lane = first; lane < first + kEach; ++lane) {
      const uint32_t bit = 1u << lane;
      if ((used & bit) == 0 && lanes_in_use_.compare_exchange_strong(used, used | bit)) return lane;
    }
    if (tries > 16) ::sched_yield();  // all lanes are in system calls that copy
  }
}

void QueueOwner::release_lane(unsigned lane) { lanes_in_use_.fetch_and(~(1u << lane)); }

HeldBells::~HeldBells() {
  current_ = nullptr;
  for (const auto& [owner, cq] : bells_) owner->ring_channel(cq);
}

bool HeldBells::hold(QueueOwner& owner, uint16_t cq) {
  if (current_ == nullptr) return false;
  current_->bells_.emplace_back(&owner, cq);
  return true;
}

HazardGuard::HazardGuard(QueueOwner& owner, base::Slot ours, AccessSide side)
    : owner_(owner), lane_number_(owner.claim_lane(side)), lane_(owner.hazard_lane(ours, lane_number_)) {}

HazardGuard::~HazardGuard() {
  for (unsigned i = 0; i < count_; ++i) lane_.regions[i].release(0);
  owner_.release_lane(lane_number_);
}

bool HazardGuard::add(uint32_t key) {
  if (count_ == arena::kHazardsPerLane) return false;
  lane_.regions[count_++].set((key >> 8) + 1);
  return true;
}

}  // namespace verbena::verbs
