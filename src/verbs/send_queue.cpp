#include "verbs/send_queue.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "verbs/device_limits.hpp"
#include "verbs/explain_failure.hpp"
#include "verbs/qp_attributes.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/responder.hpp"

namespace verbena::verbs {
namespace {

constexpr uint64_t kPieceOfWork = 256 * 1024;  // what one call copies at most (P7)

// A peer that should tell us may have no room for the letter: we look again by ourselves after so long.
constexpr base::Duration kUntold = base::milliseconds(100);

// Adapters have no smaller queues, and programs rely on it: ib_send_lat -e asks for one place and posts its
// next request though the completion of the last one hasn't come.
constexpr uint32_t kLeastRequests = 16;

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_WRITE:
      return IBV_WC_ATOMIC_WRITE;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

uint32_t places(const SendLimits& limits) { return std::bit_ceil(std::max(limits.requests, kLeastRequests)); }

// What goes through a ring, or is as short, may run under the queue's lock. Taking a window back may wait.
bool is_short(const SendRequest& request) {
  return request.length <= Responder::kLongestInRing && !stays_here(request.opcode);
}

}  // namespace

size_t SendQueue::stride(const SendLimits& limits) {
  return (sizeof(Stored) + std::max<size_t>(limits.pieces * sizeof(ibv_sge), limits.inline_bytes) + 15) &
         ~size_t{15};
}

size_t SendQueue::storage_size(const SendLimits& limits) { return stride(limits) * places(limits); }

SendQueue::SendQueue(QueuePair& owner, std::shared_ptr<CompletionQueue> completions, WorkList& pending,
                     const SendLimits& limits, bool signal_all, QueueMemory storage)
    : owner_(&owner),
      completions_(std::move(completions)),
      pending_(pending),
      limits_(limits),
      signal_all_(signal_all),
      stride_(stride(limits)),
      mask_(places(limits) - 1),
      storage_(std::move(storage)),
      datagrams_(owner.type() == IBV_QPT_UD ? mask_ + 1 : 0) {
  limits_.requests = std::max(limits.requests, kLeastRequests);
}

SendQueue::Stored* SendQueue::at(uint32_t number) {
  return reinterpret_cast<Stored*>(storage_.data() + stride_ * (number & mask_));
}

int SendQueue::post(ibv_send_wr* requests, ibv_send_wr** bad, PostRules rules) {
  int error = 0;
  bool failed = false;
  uint32_t life = 0;
  bool waits = false;  // the request at the head was tried and can't go on now
  completions_->note_post();
  {
    std::unique_lock lock(lock_);
    if (rules.all)
      if (const int refused = check_all(requests, bad, rules.windows); refused != 0) return refused;
    for (ibv_send_wr* next = requests; next != nullptr; next = next->next) {
      SendRequest request;
      error = state_ == SendState::kRefuses ? EINVAL : prepare(*next, request, rules.windows);
      if (error == 0 && outstanding() >= limits_.requests) error = ENOMEM;
      if (error != 0) {
        if (bad != nullptr) *bad = next;
        break;
      }
      const bool at_once = head_ == tail_ && state_ == SendState::kRuns && !running_ && !pipelined_;
      SendOutcome outcome{SendOutcome::Kind::kMore};
      if (at_once) {
        progress_ = {};
        if (is_short(request)) outcome = attempt(request, kPieceOfWork);
        if (outcome.kind == SendOutcome::Kind::kDone) [[likely]] {
          complete(request, IBV_WC_SUCCESS, engine::Verdict::kDone);
          continue;
        }
      }
      store(request);
      if (state_ == SendState::kFlushes) {
        flush();
      } else if (outcome.kind != SendOutcome::Kind::kMore) {
        base::Instant again{};
        if (settle(outcome, at(head_)->request, base::now(), again) && again != kNever)
          pending_.add(shared_from_this(), again);
        waits = true;
      }
    }
    if (head_ != tail_ && state_ == SendState::kRuns && !running_ && !waits) {
      // A path that takes many looks at the clock by itself.
      if (const base::Instant again = run(pipelined_ ? base::Instant{} : base::now(), lock); again != kNever)
        pending_.add(shared_from_this(), again);
    }
    failed = std::exchange(failed_, false);
    life = failed_life_;
  }
  if (failed) owner_->fail_as_requester(life);
  return error;
}

base::Instant SendQueue::go_on(base::Instant now) {
  base::Instant again = kNever;
  bool failed = false;
  std::shared_ptr<QueuePair> owner;
  uint32_t life = 0;
  {
    std::unique_lock lock(lock_);
    if (owner_ == nullptr || head_ == tail_) return kNever;
    if (running_) return now;
    again = run(now, lock);
    failed = std::exchange(failed_, false);
    life = failed_life_;
    if (failed && owner_ != nullptr) owner = owner_->weak_from_this().lock();
  }
  if (owner) owner->fail_as_requester(life);
  return again;
}

// The checks that need no path, then the path.
SendOutcome SendQueue::attempt(const SendRequest& request, uint64_t budget) {
  if (stays_here(request.opcode)) return carry_out_here(request);
  const bool eight_bytes = is_atomic(request.opcode) || request.opcode == IBV_WR_ATOMIC_WRITE;
  const bool fetches = request.opcode == IBV_WR_RDMA_READ || eight_bytes;
  if (fetches && rules_.fetches == 0)
    return {SendOutcome::Kind::kFailed, IBV_WC_LOC_QP_OP_ERR, engine::Verdict::kNotEnabled};
  if (request.length > kMaxMessageBytes || (eight_bytes && request.length != sizeof(uint64_t)))
    return {SendOutcome::Kind::kFailed, IBV_WC_LOC_LEN_ERR, engine::Verdict::kTooLong};
  return path_->advance(request, progress_, budget);
}

// A path that has many requests under way gets all it takes; their ends come by ended().
void SendQueue::hand_over() {
  bool any = false;
  while (next_ != tail_ && state_ == SendState::kRuns && !running_) {
    const SendRequest& request = at(next_)->request;
    if (stays_here(request.opcode)) {
      // What was before it ends first; and whoever brings the news of that can't wait.
      if (head_ == next_) pending_.add(shared_from_this(), base::now());
      break;
    }
    const SendOutcome outcome = attempt(request, 0);
    if (outcome.kind == SendOutcome::Kind::kTaken) {
      ++next_;
      any = true;
    } else if (outcome.kind == SendOutcome::Kind::kFull || head_ != next_) {
      break;  // what fails before it starts ends in its turn as well
    } else {
      fail_head(outcome.status, outcome.why);
    }
  }
  if (any) path_->push();
}

void SendQueue::ended(ibv_wc_status status, engine::Verdict why) {
  if (head_ == next_) return;
  if (status != IBV_WC_SUCCESS) return fail_head(status, why);
  complete(at(head_)->request, status, why);
  ++head_;
  if (state_ == SendState::kHolds && head_ == next_ && owner_ != nullptr) owner_->on_drained();
}

base::Instant SendQueue::run(base::Instant now, std::unique_lock<base::Lock>& lock) {
  if (pipelined_) {
    hand_over();
    while (run_here(lock)) hand_over();
    return kNever;
  }
  uint64_t budget = kPieceOfWork;
  // A queue that is being drained ends what it began.
  while (head_ != tail_ &&
         (state_ == SendState::kRuns || (state_ == SendState::kHolds && progress_.begun()))) {
    const SendRequest& request = at(head_)->request;
    const uint64_t before = progress_.done;
    SendOutcome outcome;
    if (is_short(request)) {
      outcome = attempt(request, budget);
    } else {
      running_ = true;
      lock.unlock();
      outcome = attempt(request, budget);
      lock.lock();
      running_ = false;
      if (state_ == SendState::kFlushes) {  // it went to ERR meanwhile: this one ends with the others
        flush();
        return kNever;
      }
      if (state_ == SendState::kRefuses) return kNever;
    }
    if (progress_.done != before) forget_attempts();
    budget -= std::min(budget, progress_.done - before);
    if (outcome.kind == SendOutcome::Kind::kDone) budget -= std::min<uint64_t>(budget, 64);
    base::Instant again = now;
    if (settle(outcome, request, now, again)) return again;
    if (budget == 0 && head_ != tail_) return now;
  }
  if (state_ == SendState::kHolds && owner_ != nullptr) owner_->on_drained();
  return kNever;
}

// Of a pipelined queue: carries the request at the head out if it is one that stays here. False: it isn't.
bool SendQueue::run_here(std::unique_lock<base::Lock>& lock) {
  if (head_ != next_ || next_ == tail_ || state_ != SendState::kRuns || running_ ||
      !stays_here(at(head_)->request.opcode))
    return false;
  running_ = true;
  lock.unlock();
  const SendOutcome outcome = carry_out_here(at(head_)->request);
  lock.lock();
  running_ = false;
  if (state_ == SendState::kFlushes) flush();
  if (state_ == SendState::kFlushes || state_ == SendState::kRefuses) return false;
  ++next_;
  path_->pass_over();
  ended(outcome.status, outcome.why);
  return true;
}

// What an outcome means for the request at the head. True: stop here, go on at `again`.
bool SendQueue::settle(const SendOutcome& outcome, const SendRequest& request, base::Instant now,
                       base::Instant& again) {
  using Kind = SendOutcome::Kind;
  bool exhausted = false;
  ibv_wc_status status = outcome.status;
  switch (outcome.kind) {
    case Kind::kDone:
      complete(request, IBV_WC_SUCCESS, engine::Verdict::kDone);
      ++head_;
      progress_ = {};
      forget_attempts();
      return false;
    case Kind::kMore:
      again = now;
      return true;
    case Kind::kNotReady:
      again = wait_not_ready(now, exhausted);
      if (!exhausted) return true;
      status = IBV_WC_RNR_RETRY_EXC_ERR;
      break;
    case Kind::kSilent:
      // No room: whoever empties the ring over there tells us.
      if (outcome.why == engine::Verdict::kNoRoom) (void)path_->ask_for_receive();
      again = wait_silent(now, exhausted);
      if (!exhausted) return true;
      status = IBV_WC_RETRY_EXC_ERR;
      break;
    case Kind::kFailed:
    case Kind::kTaken:
    case Kind::kFull:
      break;
  }
  fail_head(status, outcome.why);
  again = kNever;
  return true;
}

void SendQueue::fail_head(ibv_wc_status status, engine::Verdict why) {
  failed_life_ = owner_->incarnation();
  owner_->expect_failure(failed_life_);  // before the completion can be seen
  complete(at(head_)->request, status, why);
  ++head_;
  state_ = SendState::kFlushes;
  failed_ = true;
  flush();
}

void SendQueue::forget_attempts() {
  attempts_ = 0;
  deadline_ = {};
  waits_for_receive_ = false;
}

// An RNR NAK's timer would make the wire try again and again. Here the peer tells us when a receive is
// posted, so the timer only says when the retries would be used up (7: never, IBA 9.7.5.2.8); nothing runs
// meanwhile.
base::Instant SendQueue::wait_not_ready(base::Instant now, bool& exhausted) {
  if (!std::exchange(waits_for_receive_, true))
    deadline_ = rules_.rnr_retries < engine::kEndlessRnrRetries
                    ? now + rules_.rnr_retries * rnr_timer(path_->rnr_timer_code())
                    : kNever;
  exhausted = now >= deadline_;
  if (!exhausted && !path_->ask_for_receive()) return now;
  attempts_ = 0;
  return std::min(deadline_, now + kUntold);
}

base::Instant SendQueue::wait_silent(base::Instant now, bool& exhausted) {
  if (std::exchange(waits_for_receive_, false)) deadline_ = {};
  if (rules_.timeout == base::Duration{}) {  // for ever, but not for the dead
    exhausted = path_->peer_gone();
    return now + base::milliseconds(100);
  }
  if (deadline_ == base::Instant{}) {
    deadline_ = now + rules_.timeout;
  } else if (now >= deadline_) {
    if (++attempts_ > rules_.retries) {
      exhausted = true;
      return now;
    }
    deadline_ = now + rules_.timeout;
  }
  return deadline_;
}

void SendQueue::complete(const SendRequest& request, ibv_wc_status status, engine::Verdict why) {
  const bool wanted = status != IBV_WC_SUCCESS || signal_all_ || (request.flags & IBV_SEND_SIGNALED) != 0;
  if (!wanted) return;
  ibv_wc completion{};
  completion.wr_id = request.wr_id;
  completion.status = status;
  completion.opcode = completion_opcode(request.opcode);
  completion.qp_num = owner_->number().value;
  completion.vendor_err = static_cast<uint32_t>(why);
  completion.byte_len = is_atomic(request.opcode) ? 8 : static_cast<uint32_t>(request.length);
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
    explain_send_failure(*owner_, request, status, why);
  ++completed_;
  completions_->push(completion, false);
}

void SendQueue::flush() {
  if (running_) return;  // the one who copies does it when it comes back
  if (pipelined_) path_->stop();
  next_ = tail_;
  for (; head_ != tail_; ++head_) complete(at(head_)->request, IBV_WC_WR_FLUSH_ERR, engine::Verdict::kDone);
  progress_ = {};
  forget_attempts();
}

void SendQueue::set_rules(const RetryRules& rules) {
  const std::lock_guard lock(lock_);
  rules_ = rules;
  if (path_ != nullptr) path_->set_rules(rules);
}

void SendQueue::set_path(SendPath* path, bool pipelined) {
  const std::lock_guard lock(lock_);
  path_ = path;
  pipelined_ = pipelined;
}

void SendQueue::set_state(SendState state) {
  std::unique_lock lock(lock_);
  state_ = state;
  while (state != SendState::kRuns && running_) {
    lock.unlock();
    ::sched_yield();  // at most one bounded copy
    lock.lock();
  }
  if (state_ == SendState::kFlushes) flush();
  if (state_ == SendState::kRuns && head_ != tail_) pending_.add(shared_from_this(), base::now());
}

void SendQueue::resume() {
  const std::lock_guard lock(lock_);
  failed_ = false;
  if (path_ != nullptr) path_->resume();
}

void SendQueue::clear() {
  const std::lock_guard lock(lock_);
  head_ = next_ = tail_ = 0;
  completed_ = 0;
  polled_.store(0, std::memory_order_relaxed);
  progress_ = {};
  forget_attempts();
}

bool SendQueue::idle() {
  const std::lock_guard lock(lock_);
  if (pipelined_) return head_ == next_ && !running_;
  // Whoever runs writes the progress without the lock.
  return !running_ && (head_ == tail_ || !progress_.begun());
}

SendQueue::Failure SendQueue::take_failure() {
  if (!std::exchange(failed_, false)) return {};
  return {owner_->weak_from_this().lock(), failed_life_};
}

void SendQueue::close() {
  set_state(SendState::kRefuses);
  const std::lock_guard lock(lock_);
  owner_ = nullptr;
  storage_ = {};  // now, and on the thread that destroys: others may still hold us for a moment
}

}  // namespace verbena::verbs
