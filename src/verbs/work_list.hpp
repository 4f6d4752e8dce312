// Send queues that can't go on at once: in the middle of a long copy, or waiting for a peer. Whoever polls
// takes them on in turn; the helper thread does when nobody polls.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "base/time.hpp"

namespace verbena::verbs {

// One that wants to be called again.
class Pending {
 public:
  virtual ~Pending() = default;
  // Goes on for a bounded piece. When to call again: the past means at once, kNever means it is idle.
  static constexpr base::Instant kNever{INT64_MAX};
  virtual base::Instant go_on(base::Instant now) = 0;
};

class WorkList {
 public:
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // Twice is once.
  void add(const std::shared_ptr<Pending>& pending, base::Instant due);
  // Lets the next one go on, whether due or not: what it waits for may have come early. False: none is left.
  bool step(base::Instant now);
  // Lets each one go on once; tells when the first is due again.
  base::Instant run_all(base::Instant now);
  // When the first is due; kNever: there is none.
  [[nodiscard]] base::Instant next_due();
  // Called when the list gets its first entry, or one that is due before run_all()'s last answer, be it one
  // that was going on then: the helper thread may sleep until that.
  void (*on_first)(void*) = nullptr;
  void* context = nullptr;

 private:
  struct Entry {
    std::shared_ptr<Pending> pending;
    base::Instant due;
  };
  [[nodiscard]] base::Instant first_due() const;  // with mutex_ held

  std::mutex mutex_;
  base::Instant promised_ = Pending::kNever;  // what run_all() last answered
  std::deque<Entry> entries_;
  std::atomic<size_t> count_ = 0;  // entries, and those that are going on right now
};

}  // namespace verbena::verbs
