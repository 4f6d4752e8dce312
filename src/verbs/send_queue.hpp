// The send queue of a queue pair: requests in order, retries, completions.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "base/time.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/queue_memory.hpp"
#include "verbs/send_path.hpp"
#include "verbs/work_list.hpp"

namespace verbena::verbs {

class QueuePair;

struct SendLimits {
  uint32_t requests = 0;
  uint32_t pieces = 0;
  uint32_t inline_bytes = 0;
};

enum class SendState : uint8_t {
  kRefuses,  // RESET, INIT, RTR: posting is an error
  kRuns,     // RTS
  kHolds,    // SQD: takes requests, starts none
  kFlushes,  // ERR, SQE: takes requests, ends them at once
};

struct PostRules {
  ibv_mw_type windows = IBV_MW_TYPE_2;  // what IBV_WR_BIND_MW is about; ibv_bind_mw posts one for type 1
  bool all = false;                     // none is posted if one is refused (ibv_wr_complete)
};

class SendQueue final : public Pending, public std::enable_shared_from_this<SendQueue> {
 public:
  // `storage` has storage_size() bytes.
  SendQueue(QueuePair& owner, std::shared_ptr<CompletionQueue> completions, WorkList& pending,
            const SendLimits& limits, bool signal_all, QueueMemory storage);
  [[nodiscard]] static size_t storage_size(const SendLimits& limits);

  // ibv_post_send: 0, or an errno with `bad` at the request it is about.
  [[nodiscard]] int post(ibv_send_wr* requests, ibv_send_wr** bad, PostRules rules = {});
  base::Instant go_on(base::Instant now) override;

  void set_rules(const RetryRules& rules);
  // From RTR on; the queue pair owns it. `pipelined`: it takes many requests before the first has ended.
  void set_path(SendPath* path, bool pipelined = false);
  // kFlushes ends everything that waits. Any but kRuns returns only when no thread is inside a request.
  void set_state(SendState state);
  // Before kRuns, after a failure that cost the send queue only (SQE).
  void resume();
  // For RESET: forgets what waits, without completions.
  void clear();
  [[nodiscard]] bool idle();
  [[nodiscard]] const SendLimits& limits() const { return limits_; }
  [[nodiscard]] CompletionQueue& completions() { return *completions_; }
  // A completion of it was polled: its place is free for another request. Whoever posts until ENOMEM can't
  // overflow a completion queue that is as deep as the queues that complete into it.
  // With the lock of that queue held.
  void polled() { polled_.store(polled_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // The queue pair is being destroyed: go_on does nothing any more.
  void close();

  // ---- For pipelined paths. ----
  struct Failure {
    std::shared_ptr<QueuePair> queue_pair;  // null: none
    uint32_t life = 0;
  };
  // Takes answers with the queue's lock held, then hands over what waited for them. The caller has the queue
  // pair fail once it holds no lock.
  template <typename Take>
  [[nodiscard]] Failure answered(Take take) {
    const std::lock_guard lock(lock_);
    if (owner_ == nullptr) return {};
    take();
    hand_over();
    return take_failure();
  }
  // With the lock held: the oldest request that was taken has ended.
  void ended(ibv_wc_status status, engine::Verdict why);
  [[nodiscard]] const SendRequest& request(uint32_t number) { return at(number)->request; }
  // Of the first request that the path hasn't taken.
  [[nodiscard]] uint32_t next_number() const { return next_; }

 private:
  struct Stored {
    SendRequest request;
    // ibv_sge or inline bytes follow
  };
  [[nodiscard]] static size_t stride(const SendLimits& limits);
  [[nodiscard]] Stored* at(uint32_t number);
  [[nodiscard]] uint32_t outstanding() const {
    return tail_ - head_ + completed_ - polled_.load(std::memory_order_relaxed);
  }
  // All of them could be posted now; else as post(). With the lock held.
  [[nodiscard]] int check_all(ibv_send_wr* requests, ibv_send_wr** bad, ibv_mw_type windows);
  [[nodiscard]] int prepare(const ibv_send_wr& from, SendRequest& request, ibv_mw_type windows);
  [[nodiscard]] static int prepare_here(const ibv_send_wr& from, SendRequest& request, ibv_mw_type windows);
  [[nodiscard]] SendOutcome carry_out_here(const SendRequest& request) const;
  [[nodiscard]] int prepare_datagram(const ibv_send_wr& from, SendRequest& request);
  void store(const SendRequest& request);
  [[nodiscard]] SendOutcome attempt(const SendRequest& request, uint64_t budget);
  // With lock_ held; may give it back in between. When to call again; kNever: nothing waits.
  base::Instant run(base::Instant now, std::unique_lock<base::Lock>& lock);
  [[nodiscard]] bool settle(const SendOutcome& outcome, const SendRequest& request, base::Instant now,
                            base::Instant& again);
  void complete(const SendRequest& request, ibv_wc_status status, engine::Verdict why);
  void fail_head(ibv_wc_status status, engine::Verdict why);
  void hand_over();
  [[nodiscard]] bool run_here(std::unique_lock<base::Lock>& lock);
  [[nodiscard]] Failure take_failure();
  void flush();
  void forget_attempts();
  [[nodiscard]] base::Instant wait_not_ready(base::Instant now, bool& exhausted);
  [[nodiscard]] base::Instant wait_silent(base::Instant now, bool& exhausted);

  QueuePair* owner_;  // null once closed
  std::shared_ptr<CompletionQueue> completions_;
  WorkList& pending_;
  SendLimits limits_;
  bool signal_all_;

  base::Lock lock_;
  SendPath* path_ = nullptr;
  RetryRules rules_;
  SendState state_ = SendState::kRefuses;
  bool running_ = false;      // a thread copies for the request at the head, without the lock
  bool failed_ = false;       // the queue pair must be told, once the lock is given back
  uint32_t failed_life_ = 0;  // the queue pair's incarnation when it did
  size_t stride_;
  uint32_t mask_;  // of places in storage_
  QueueMemory storage_;
  std::vector<Datagram> datagrams_;  // UD: one a place in storage_
  Datagram posted_;                  // of the request that is being posted
  bool pipelined_ = false;
  uint32_t head_ = 0;
  uint32_t next_ = 0;  // pipelined: the first that the path hasn't taken
  uint32_t tail_ = 0;
  uint32_t completed_ = 0;            // completions in all
  std::atomic<uint32_t> polled_ = 0;  // of them by the program, in all
  SendProgress progress_;
  unsigned attempts_ = 0;     // timeouts of the request at the head
  base::Instant deadline_{};  // of the wait that is on; 0: none
  bool waits_for_receive_ = false;
};

}  // namespace verbena::verbs
