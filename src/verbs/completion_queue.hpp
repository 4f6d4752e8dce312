// A completion queue: what its own process completed, merged with what each peer process delivers through a
// ring of its own.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <vector>

#include "arena/delivery_ring.hpp"
#include "base/lock.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/completion_channel.hpp"
#include "verbs/event_moderation.hpp"
#include "verbs/event_queue.hpp"
#include "verbs/waiting_completions.hpp"
#include "verbs/work_list.hpp"

namespace verbena::verbs {

class Process;
class QueuePair;

// Where a ring lies, and whose it is.
struct InboundRing {
  base::Slot slot;
  uint32_t epoch = 0;  // of that slot: another process in it gets another ring
  uint64_t offset = 0;
  uint32_t id = 0;
  arena::RingShape shape;
};

class CompletionQueue : public std::enable_shared_from_this<CompletionQueue> {
 public:
  struct Config {
    int cqe = 0;
    CompletionChannel* channel = nullptr;
    void* element = nullptr;       // what channel and asynchronous events name: the program's ibv_cq
    EventQueue* events = nullptr;  // its device's
    bool stamps = false;           // completions are told when they came
    // The program promises that it never overflows; if it does all the same, the oldest are lost, silently.
    bool ignores_overrun = false;
    QueueAllocator* allocator = nullptr;  // the program's; outlives the queue
  };
  // ENOMEM: too many, or no memory.
  [[nodiscard]] static base::Result<std::shared_ptr<CompletionQueue>> create(Process& process,
                                                                             const Config& config);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // The program's side; any thread.
  // `stamps_ns`, if given: when each completed, on the monotonic clock; Config::stamps must be set.
  [[nodiscard]] int poll(int count, ibv_wc* completions, uint64_t* stamps_ns = nullptr);
  void arm(bool solicited_only);
  [[nodiscard]] int cqe() const { return cqe_.load(std::memory_order_relaxed); }
  // EINVAL: more completions wait than would fit.
  [[nodiscard]] base::Result<void> resize(int cqe);
  // An event only for `count` completions, or `period` after the first of them.
  void moderate(uint32_t count, base::Duration period);

  // Queue pairs' side.
  // The program posted: as good a sign as a poll that it sees to its own progress.
  void note_post() { polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void push(const ibv_wc& completion, bool solicited);
  // The ring through which that process delivers here; made on first use. ENOMEM: no room.
  [[nodiscard]] base::Result<InboundRing> inbound(base::Slot slot, uint32_t epoch);
  // That process is gone: what it delivered is taken, and its ring given back.
  void drop_source(base::Slot slot, uint32_t epoch);
  // Takes everything out of the rings, so that peers have room again and failures are noticed.
  void merge();
  // What peers have delivered is taken, then `rest` runs with the queue's lock held. For queue pairs that
  // change their own state: others that a record failed are left to Process::work().
  template <typename Rest>
  void settle(Rest rest) {
    Failures failures;
    {
      const std::lock_guard lock(lock_);
      merge_locked(failures);
      rest();
    }
    postpone(failures);
  }
  // With the lock held (inside settle's `rest`).
  void push_locked(const ibv_wc& completion, bool solicited);
  void forget_locked(uint32_t qpn);

  // Before it is destroyed: its channel hands out no event of it any more, and memory of the program's goes
  // back on this thread.
  void close();

  [[nodiscard]] uint16_t index() const { return index_; }
  [[nodiscard]] void* element() const { return config_.element; }
  [[nodiscard]] uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  // Queue pairs that complete here: it can't be destroyed before them.
  std::atomic<int> users = 0;
  // Places that its send queues have beyond what was asked for: the program didn't count them when it chose
  // cqe.
  std::atomic<int> slack = 0;

 private:
  struct Source {
    InboundRing ring;
    arena::RingConsumer consumer;
  };
  // Queue pairs that a record failed: concluded after the lock is given back.
  using Failures = std::vector<std::shared_ptr<QueuePair>>;

  CompletionQueue(Process& process, const Config& config, uint16_t index);
  void wait_politely();
  [[nodiscard]] int poll_locked(int count, ibv_wc* completions, uint64_t* stamps_ns, Failures& failures);
  // True: a completion was written.
  bool take_record(Source& source, ibv_wc& completion, Failures& failures);
  void merge_locked(Failures& failures);
  static void conclude(const Failures& failures);
  void postpone(const Failures& failures);
  void queue_locked(const ibv_wc& completion);
  void overrun_locked();
  void drop_oldest_locked();
  [[nodiscard]] uint64_t stamp() const;
  // What waits for the end of a moderation's period; WorkList calls it.
  struct Alarm final : Pending {
    std::weak_ptr<CompletionQueue> queue;
    base::Instant go_on(base::Instant now) override;
  };
  [[nodiscard]] bool held_back_locked(const ibv_wc& completion);

  Process& process_;
  Config config_;
  uint16_t index_;
  uint32_t token_ = 0;
  std::atomic<int> cqe_;
  std::atomic<uint64_t> polls_ = 0;
  std::atomic<uint32_t> empty_polls_ = 0;  // in a row

  base::Lock lock_;
  WaitingCompletions waiting_;
  EventModeration moderation_;
  std::shared_ptr<Alarm> alarm_;  // from the first moderation on
  std::vector<Source> sources_;
  size_t next_source_ = 0;
  bool overrun_ = false;
};

}  // namespace verbena::verbs
