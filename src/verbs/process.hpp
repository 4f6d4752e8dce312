// Everything RDMA that this process owns: its arena, the tables of its objects by number, and the work that
// goes on outside of post and poll.
#pragma once

#include <atomic>
#include <bitset>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arena/heap.hpp"
#include "arena/process_arena.hpp"
#include "base/lock.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/memory_regions.hpp"
#include "verbs/memory_windows.hpp"
#include "verbs/work_list.hpp"

namespace verbena::verbs {

class QueuePair;
class SharedReceiveQueue;

// What peers ask of us by letter; local/ answers.
class Postman {
 public:
  virtual ~Postman() = default;
  [[nodiscard]] virtual bool has_letters() const = 0;
  // True: something was done.
  virtual bool read_letters() = 0;
  // XRC: that shared queue of ours has receives for which processes in these slots may wait.
  virtual void tell_posted(uint32_t /*srq*/, const std::bitset<256>& /*slots*/) {}
  // It rests longer than it should now.
  virtual void wake_resting_helper() {}
};

// What comes and goes by the network; wire/ does it.
class Wire {
 public:
  virtual ~Wire() = default;
  // Some queue pair uses it, so whoever polls should look.
  [[nodiscard]] virtual bool active() const = 0;
  // True: something was done. Whoever comes again in a moment may leave for then what nobody waits for: who
  // polls, and a helper that stands in for a program which is there now and then, and will post.
  enum class Driver : uint8_t { kPoller, kHelper, kStandIn };
  virtual bool drive(base::Instant now, Driver driver) = 0;
};

class Process {
 public:
  // The segments are this process's own, fresh, and outlive it.
  Process(arena::ProcessArena arena, base::Slot slot);
  ~Process();

  [[nodiscard]] const arena::ProcessArena& arena() const { return arena_; }
  [[nodiscard]] arena::Heap& tables_heap() { return tables_heap_; }
  [[nodiscard]] base::Slot slot() const { return slot_; }
  [[nodiscard]] MemoryRegions& regions() { return regions_; }
  [[nodiscard]] MemoryWindows& windows() { return windows_; }
  [[nodiscard]] WorkList& pending() { return pending_; }
  void set_postman(std::shared_ptr<Postman> postman) { postman_ = std::move(postman); }
  // It outlives this process's queue pairs.
  void set_wire(Wire& wire) { wire_.store(&wire, std::memory_order_release); }

  // Numbers. ENOMEM: all are in use.
  [[nodiscard]] base::Result<uint16_t> claim_cq();
  void release_cq(uint16_t index);
  [[nodiscard]] base::Result<uint16_t> claim_qp();
  void release_qp(uint16_t index);
  void publish_qp(uint16_t index, QueuePair* queue_pair) { qps_[index].store(queue_pair); }
  // Null: not ours, or not there. Valid as long as the lock of the queue it completes into is held.
  [[nodiscard]] QueuePair* find_qp(uint32_t number) const {
    if (number >> 16 != slot_.value) return nullptr;
    return qps_[number & 0xffff].load(std::memory_order_acquire);
  }
  // The same for those who hold no such lock.
  [[nodiscard]] std::shared_ptr<QueuePair> hold_qp(uint32_t number);
  void add(const std::shared_ptr<CompletionQueue>& queue);
  [[nodiscard]] std::vector<std::shared_ptr<CompletionQueue>> queues();
  [[nodiscard]] std::vector<std::shared_ptr<QueuePair>> queue_pairs();
  // Shared receive queues.
  [[nodiscard]] base::Result<uint16_t> claim_srq();
  void release_srq(uint16_t index);
  void add(const std::shared_ptr<SharedReceiveQueue>& queue);
  [[nodiscard]] std::vector<std::shared_ptr<SharedReceiveQueue>> shared_queues();
  // Null: not there, or no XRC queue. Valid as long as the lock of the queue it completes into is held.
  [[nodiscard]] SharedReceiveQueue* find_srq(uint32_t index) const {
    return index < srqs_.size() ? srqs_[index].load(std::memory_order_acquire) : nullptr;
  }
  void publish_srq(uint16_t index, SharedReceiveQueue* queue) { srqs_[index].store(queue); }
  // The same for those who hold no such lock: any kind of it, by number.
  [[nodiscard]] std::shared_ptr<SharedReceiveQueue> hold_srq(uint32_t number);
  void tell_posted(uint32_t srq, const std::bitset<256>& slots) {
    if (postman_) postman_->tell_posted(srq, slots);
  }
  // Room in the rings for claim words, used for nothing else ever after; 0: none.
  [[nodiscard]] uint64_t take_claims(uint64_t size);
  void keep_claims(uint64_t offset, uint64_t size);
  // For those who hold locks: work() lets waiting requesters know of receives that are back.
  void refresh_shared_later();
  // ibv_dereg_mr.
  [[nodiscard]] base::Result<void> deregister(uint32_t key);
  [[nodiscard]] base::Result<void> reregister(uint32_t key, int mask, const RegionRequest& request);

  [[nodiscard]] base::Result<InboundRing> make_ring(base::Slot slot, uint32_t epoch, arena::RingShape shape);
  // Its producer may still be writing into it: only the same process gets it again, until that one is gone.
  void retire(const InboundRing& ring);
  void peer_gone(base::Slot slot, uint32_t epoch);

  // What pollers and the helper thread do: letters, queue pairs that wait, overrun queues.
  [[nodiscard]] bool has_work() const {
    return pending_.any() || failing_any_.load(std::memory_order_relaxed) ||
           (postman_ != nullptr && postman_->has_letters()) || wire_active();
  }
  bool work(Wire::Driver driver = Wire::Driver::kPoller);
  [[nodiscard]] bool wire_active() const {
    const Wire* wire = wire_.load(std::memory_order_acquire);
    return wire != nullptr && wire->active();
  }
  [[nodiscard]] bool has_failures() const { return failing_any_.load(); }
  // Takes what lies in the rings of a queue, so that more can come; with any lock but a queue's held.
  [[nodiscard]] bool empty_rings(uint16_t cq);
  void fail_users_later(CompletionQueue& queue);
  void fail_later(std::shared_ptr<QueuePair> queue_pair);
  [[nodiscard]] uint64_t polls();
  // The helper looks rarely, for the program polls all the time: whoever is about to stop that has it called.
  void rely_on_polls() { relied_on_.store(true); }
  void may_stop_polling() {
    if (relied_on_.load(std::memory_order_relaxed) && relied_on_.exchange(false) && postman_)
      postman_->wake_resting_helper();
  }
  // True: nobody was about to stop.
  bool rely_no_more() { return relied_on_.exchange(false); }
  // Held by who rings a channel of this process's, from when it reads the descriptor.
  [[nodiscard]] std::mutex& ringing() { return ringing_; }

 private:
  void withdraw(uint32_t key);
  void fail_due();
  void call_helper() const;

  arena::ProcessArena arena_;
  base::Slot slot_;
  arena::Heap tables_heap_{arena::kTablesHeapAt, arena::kTablesSize};
  arena::Heap rings_heap_{arena::kRingsHeapAt, arena::kRingsSize};
  MemoryRegions regions_;
  MemoryWindows windows_{arena_, regions_};
  WorkList pending_;
  std::shared_ptr<Postman> postman_;
  std::atomic<Wire*> wire_ = nullptr;
  std::mutex ringing_;

  std::mutex mutex_;  // all below
  std::vector<std::atomic<QueuePair*>> qps_;
  std::vector<bool> qp_used_;
  std::vector<bool> cq_used_;
  uint16_t next_qp_;
  uint16_t next_cq_ = 0;
  std::vector<bool> srq_used_;
  std::vector<std::atomic<SharedReceiveQueue*>> srqs_;  // XRC ones
  uint16_t next_srq_ = 0;
  std::vector<std::weak_ptr<SharedReceiveQueue>> shared_queues_;
  size_t sweep_shared_at_ = 64;                     // as sweep_at_, of shared queues
  std::multimap<uint64_t, uint64_t> spare_claims_;  // size to offset
  bool refresh_due_ = false;
  std::vector<std::weak_ptr<CompletionQueue>> queues_;
  size_t sweep_at_ = 64;  // entries of queues_
  std::vector<InboundRing> retired_;
  uint32_t last_ring_id_ = 0;
  std::atomic<bool> relied_on_ = false;
  std::atomic<bool> failing_any_ = false;
  std::vector<uint16_t> failing_cqs_;
  std::vector<std::shared_ptr<QueuePair>> failing_qps_;
};

}  // namespace verbena::verbs
