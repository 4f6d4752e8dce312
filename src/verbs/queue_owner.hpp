// The process that owns a queue pair, as requests find it: its arena, its memory, and how to get its
// attention. Ours, or a peer's (local::Peer).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arena/delivery_ring.hpp"
#include "arena/process_arena.hpp"
#include "base/lock.hpp"
#include "engine/memory_accessor.hpp"
#include "engine/responder_actions.hpp"
#include "verbs/key_check.hpp"

namespace verbena::verbs {

// A ring's producing end, shared by our queue pairs whose peers complete into the same queue.
struct DeliveryPort {
  DeliveryPort(std::byte* memory, arena::RingShape shape) : ring(memory, shape) {}
  base::Lock lock;
  arena::RingProducer ring;
};

// Stays mapped for as long as it is held.
using HeldMemory = std::shared_ptr<std::byte>;

// A queue pair connected to one of its own process guards its memory twice, as requester and as target. Each
// side has lanes of its own, lest threads wait for each other's in a circle.
enum class AccessSide : uint8_t { kTarget, kRequester };

class QueueOwner {
 public:
  explicit QueueOwner(arena::ProcessArena arena) : arena_(arena) {}
  virtual ~QueueOwner() = default;
  QueueOwner(const QueueOwner&) = delete;
  QueueOwner& operator=(const QueueOwner&) = delete;

  [[nodiscard]] const arena::ProcessArena& arena() const { return arena_; }
  [[nodiscard]] virtual engine::MemoryAccessor& memory() = 0;
  // Dead, or left by exec: it answers nothing.
  [[nodiscard]] bool gone() const { return gone_.load(std::memory_order_relaxed); }
  // True: it was known already.
  bool set_gone() { return gone_.exchange(true); }
  // Has its helper thread look at letters and full rings.
  virtual void wake_helper() = 0;
  // Takes what lies in the rings of that queue. False: only another process can; wake its helper.
  [[nodiscard]] virtual bool empty_rings(uint16_t) { return false; }
  // An event on the completion channel of that queue.
  virtual void ring_channel(uint16_t cq) = 0;
  // Where a region of shared memory is mapped here, from its byte `address` on; null: it isn't.
  [[nodiscard]] virtual HeldMemory mapped(uint32_t key, uint64_t address, uint64_t length) = 0;
  // Where we may run an atomic operation ourselves; null: only the owner can, ask it.
  [[nodiscard]] virtual HeldMemory atomic_target(const engine::AtomicRequest& request,
                                                 const Region& region) = 0;

  // Null where the shape or the place can't be.
  [[nodiscard]] std::shared_ptr<DeliveryPort> port(uint64_t offset, uint32_t id, arena::RingShape shape);

  // Where the process in that slot says what it is accessing here.
  [[nodiscard]] virtual arena::HazardLane& hazard_lane(base::Slot accessor, unsigned lane) {
    return arena_.hazards(accessor, lane);
  }
  // One of the lanes in which a thread of ours says what it is accessing; waits while all are in use.
  [[nodiscard]] unsigned claim_lane(AccessSide side);
  void release_lane(unsigned lane);

 private:
  arena::ProcessArena arena_;
  std::mutex ports_mutex_;
  // By offset and id. They stay: the next connection through a ring goes on where the last one ended.
  std::map<std::pair<uint64_t, uint32_t>, std::shared_ptr<DeliveryPort>> ports_;
  std::atomic<uint32_t> lanes_in_use_ = 0;
  std::atomic<bool> gone_ = false;
};

// While it lives, this thread rings no completion channel of its own process: they are rung at its end. A
// program that is woken takes the core from whoever woke it, and with it the acknowledgements that weren't
// sent yet.
class HeldBells {
 public:
  HeldBells() { current_ = this; }
  ~HeldBells();
  HeldBells(const HeldBells&) = delete;
  HeldBells& operator=(const HeldBells&) = delete;

  // False: nothing is held on this thread, so ring.
  [[nodiscard]] static bool hold(QueueOwner& owner, uint16_t cq);

 private:
  // Of the few bytes that a library loaded late may still have so: one load instead of a call.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local HeldBells* current_ = nullptr;
  std::vector<std::pair<QueueOwner*, uint16_t>> bells_;
};

// While it lives, the owner's ibv_dereg_mr waits for us where it concerns one of these regions.
class HazardGuard {
 public:
  HazardGuard(QueueOwner& owner, base::Slot ours, AccessSide side = AccessSide::kTarget);
  ~HazardGuard();
  HazardGuard(const HazardGuard&) = delete;
  HazardGuard& operator=(const HazardGuard&) = delete;

  // By key; false: more than there is room for.
  [[nodiscard]] bool add(uint32_t key);
  // After the last add, before the keys are looked up: whoever deregisters from now on sees us.
  void seal() { std::atomic_thread_fence(std::memory_order_seq_cst); }

 private:
  QueueOwner& owner_;
  unsigned lane_number_;
  arena::HazardLane& lane_;
  unsigned count_ = 0;
};

}  // namespace verbena::verbs
