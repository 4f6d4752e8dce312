#include "verbs/completion_queue.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "base/explain.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::verbs {
namespace {

constexpr uint32_t kMostSlots = 2048;  // deeper rings only cost cache: who falls behind is merged
constexpr uint32_t kLeastPayload = 16384;
constexpr uint32_t kMostPayload = 256 * 1024;
constexpr uint64_t kWorkAnyway = 16;  // polls

arena::RingShape shape_for(int cqe) {
  const uint32_t slots = std::clamp(std::bit_ceil(static_cast<uint32_t>(cqe)), 16u, kMostSlots);
  return {slots, std::clamp(slots * 256, kLeastPayload, kMostPayload)};
}

// As adapters do: a power of two, one place of it spare.
int rounded(int cqe) { return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(cqe) + 1) - 1); }

}  // namespace

CompletionQueue::CompletionQueue(Process& process, const Config& config, uint16_t index)
    : process_(process), config_(config), index_(index), cqe_(rounded(config.cqe)) {}

base::Result<std::shared_ptr<CompletionQueue>> CompletionQueue::create(Process& process,
                                                                       const Config& config) {
  const auto index = process.claim_cq();
  if (!index) return std::unexpected(index.error());
  std::shared_ptr<CompletionQueue> queue(new CompletionQueue(process, config, *index));
  if (config.allocator != nullptr) {
    const auto reserved = queue->waiting_.reserve(*config.allocator, static_cast<uint32_t>(queue->cqe()));
    if (!reserved) return std::unexpected(reserved.error());
  }
  auto& entry = process.arena().cq(*index);
  auto& bell = process.arena().bell(*index);
  bell.armed.set(0);
  bell.attention.set(0);
  entry.channel.set(-1);
  if (config.channel != nullptr) {
    queue->token_ = config.channel->join(config.element);
    entry.token.set(queue->token_);
    entry.inode.set(config.channel->inode());
    entry.channel.release(config.channel->writing_fd());
  }
  process.add(queue);
  return queue;
}

void CompletionQueue::close() {
  process_.arena().cq(index_).channel.release(-1);
  // Who has read the descriptor before rings now: the program may close it as soon as we return.
  { const std::lock_guard ringing(process_.ringing()); }
  const std::lock_guard lock(lock_);
  if (config_.channel != nullptr) config_.channel->leave(token_);
  config_.channel = nullptr;
  waiting_ = {};
}

CompletionQueue::~CompletionQueue() {
  close();
  for (const auto& source : sources_) process_.retire(source.ring);
  process_.release_cq(index_);
}

uint64_t CompletionQueue::stamp() const { return config_.stamps ? static_cast<uint64_t>(base::now().ns) : 0; }

int CompletionQueue::poll(int count, ibv_wc* completions, uint64_t* stamps_ns) {
  polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  int taken = 0;
  for (bool worked = false;;) {
    Failures failures;
    {
      const std::lock_guard lock(lock_);
      if (overrun_) return -1;
      taken += poll_locked(count - taken, completions + taken,
                           stamps_ns != nullptr ? stamps_ns + taken : nullptr, failures);
    }
    if (!failures.empty()) [[unlikely]] {
      conclude(failures);  // and what it flushed is taken, too
      continue;
    }
    // The poller is the engine (P7): what can't go on by itself goes on here.
    if (worked || !process_.has_work()) {
      if (taken == 0) [[unlikely]]
        wait_politely();
      else
        empty_polls_.store(0, std::memory_order_relaxed);
      return taken;
    }
    // What it has taken keeps the program busy, and what waits in the network's queues is better off there
    // than dropped for want of a receive. Only, other queues must not starve.
    if (taken > 0 && polls_.load(std::memory_order_relaxed) % kWorkAnyway != 0) return taken;
    worked = true;
    const bool found = process_.work();
    note_post();  // that may have taken long
    if (!found || taken > 0) return taken;
  }
}

// Whoever polls in vain for tens of microseconds may be keeping its peer from the only core there is: without
// this two pollers on one core take turns of milliseconds. Where cores are free it costs one system call now
// and then, while there is nothing to do.
void CompletionQueue::wait_politely() {
  constexpr uint32_t kPatience = 1024;
  constexpr uint32_t kEvery = 64;
  const uint32_t empty = empty_polls_.load(std::memory_order_relaxed) + 1;
  empty_polls_.store(empty, std::memory_order_relaxed);
  if (empty > kPatience && empty % kEvery == 0) ::sched_yield();
}

int CompletionQueue::poll_locked(int count, ibv_wc* completions, uint64_t* stamps_ns, Failures& failures) {
  int taken = 0;
  while (taken < count && !waiting_.empty()) {
    if (stamps_ns != nullptr) stamps_ns[taken] = waiting_.front().stamp_ns;
    const ibv_wc& next = completions[taken++] = waiting_.front().completion;
    waiting_.pop_front();
    if (auto* queue_pair = process_.find_qp(next.qp_num)) queue_pair->on_polled(next);
  }
  const size_t sources = sources_.size();
  for (size_t i = 0; i < sources && taken < count; ++i) {
    Source& source = sources_[next_source_];
    while (taken < count && source.consumer.ready())
      if (take_record(source, completions[taken], failures)) {
        if (stamps_ns != nullptr) stamps_ns[taken] = stamp();
        ++taken;
      }
    // Another one is first next time: no peer's stream keeps the others waiting.
    if (++next_source_ >= sources) next_source_ = 0;
  }
  return taken;
}

bool CompletionQueue::take_record(Source& source, ibv_wc& completion, Failures& failures) {
  const auto taken = source.consumer.take();
  bool completed = false;
  bool failed = false;
  if ((taken.record.flags & arena::kForShared) != 0) {  // XRC: the queue pair is the keeper's
    if (auto* shared = process_.find_srq(taken.record.incarnation);
        shared != nullptr && shared->config().cq.get() == this)
      completed = shared->on_record(taken, source.ring.slot, completion);
    source.consumer.release();
    return completed;
  }
  // The number is a peer's word: it counts only if that queue pair is ours, completes here and is connected
  // to that very peer.
  if (auto queue_pair = process_.find_qp(taken.record.qp);
      queue_pair && queue_pair->receives_at(*this, source.ring.slot)) {
    completed = queue_pair->on_record(taken, source.ring.slot, completion, failed);
    // One that is being destroyed needs no conclusion.
    if (failed) [[unlikely]]
      if (auto held = queue_pair->weak_from_this().lock()) failures.push_back(std::move(held));
  }
  source.consumer.release();
  return completed;
}

void CompletionQueue::merge_locked(Failures& failures) {
  for (auto& source : sources_) {
    ibv_wc completion;
    while (!overrun_ && source.consumer.ready())
      if (take_record(source, completion, failures)) queue_locked(completion);  // its peer rang already
  }
}

void CompletionQueue::merge() {
  Failures failures;
  {
    const std::lock_guard lock(lock_);
    merge_locked(failures);
  }
  conclude(failures);
}

void CompletionQueue::postpone(const Failures& failures) {
  for (const auto& queue_pair : failures) process_.fail_later(queue_pair);
}

void CompletionQueue::conclude(const Failures& failures) {
  for (const auto& queue_pair : failures) queue_pair->fail_as_responder();
}

void CompletionQueue::push(const ibv_wc& completion, bool solicited) {
  const std::lock_guard lock(lock_);
  push_locked(completion, solicited);
}

void CompletionQueue::push_locked(const ibv_wc& completion, bool solicited) {
  queue_locked(completion);
  if (config_.channel == nullptr) return;
  auto& armed = process_.arena().bell(index_).armed;
  const uint32_t arm = armed.get();
  if (arm == 0) return;
  // An error is always worth an event (IBA 11.4.2.2).
  if (arm == static_cast<uint32_t>(arena::CqArm::kSolicited) && !solicited &&
      completion.status == IBV_WC_SUCCESS)
    return;
  if (moderation_.on() && held_back_locked(completion)) return;
  if (armed.atomic().exchange(0) != 0) config_.channel->ring(token_);
}

void CompletionQueue::moderate(uint32_t count, base::Duration period) {
  const std::lock_guard lock(lock_);
  // What is held back under the old rule rings as soon as somebody looks: the alarm is due by then.
  if (moderation_.holds() && process_.arena().bell(index_).armed.atomic().exchange(0) != 0 &&
      config_.channel != nullptr)
    config_.channel->ring(token_);
  moderation_.set(count, period);
  if (alarm_ == nullptr) {
    alarm_ = std::make_shared<Alarm>();
    alarm_->queue = weak_from_this();
  }
}

bool CompletionQueue::held_back_locked(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    moderation_.forget();
    return false;
  }
  if (moderation_.add(base::now())) return false;
  process_.pending().add(alarm_, moderation_.due());
  return true;
}

base::Instant CompletionQueue::Alarm::go_on(base::Instant now) {
  const auto held = queue.lock();
  if (!held) return kNever;
  const std::lock_guard lock(held->lock_);
  if (!held->moderation_.holds()) return kNever;
  if (!held->moderation_.expire(now)) return held->moderation_.due();
  if (held->config_.channel != nullptr &&
      held->process_.arena().bell(held->index_).armed.atomic().exchange(0) != 0)
    held->config_.channel->ring(held->token_);
  return kNever;
}

void CompletionQueue::queue_locked(const ibv_wc& completion) {
  if (overrun_) return;
  if (waiting_.size() >= static_cast<size_t>(cqe() + slack.load(std::memory_order_relaxed))) {
    if (!config_.ignores_overrun) return overrun_locked();
    drop_oldest_locked();
  }
  if (!waiting_.push_back(completion, stamp())) overrun_locked();
}

void CompletionQueue::drop_oldest_locked() {
  const ibv_wc oldest = waiting_.front().completion;
  waiting_.pop_front();
  if (auto* queue_pair = process_.find_qp(oldest.qp_num)) queue_pair->on_polled(oldest);
}

// More completions than the program said there would be: the queue is lost (DESIGN 2.8).
void CompletionQueue::overrun_locked() {
  overrun_ = true;
  base::explain(
      fmt::format("completion queue {} overflowed: {} completions wait and another came; poll it "
                  "more often or create it with a larger cqe. Its queue pairs go to the error state",
                  index_, cqe()));
  if (config_.events != nullptr)
    config_.events->push({IBV_EVENT_CQ_ERR, reinterpret_cast<uint64_t>(config_.element)});
  process_.fail_users_later(*this);
}

void CompletionQueue::forget_locked(uint32_t qpn) { waiting_.erase_of(qpn); }

void CompletionQueue::arm(bool solicited_only) {
  auto& armed = process_.arena().bell(index_).armed.atomic();
  const auto wanted = static_cast<uint32_t>(solicited_only ? arena::CqArm::kSolicited : arena::CqArm::kAny);
  // Asking for any is not taken back by asking for solicited ones. The exchange is also the fence between
  // arming and the program's next poll.
  uint32_t before = armed.load();
  while (before < wanted && !armed.compare_exchange_weak(before, wanted)) {
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  process_.may_stop_polling();
}

base::Result<void> CompletionQueue::resize(int cqe) {
  if (cqe <= 0 || cqe > kMaxCqe)
    return base::fail(EINVAL, fmt::format("a completion queue has 1 to {} entries", kMaxCqe));
  Failures failures;
  base::Result<void> result;
  {
    const std::lock_guard lock(lock_);
    merge_locked(failures);
    if (waiting_.size() > static_cast<size_t>(cqe))
      result = base::fail(EINVAL, fmt::format("{} completions wait in the queue; {} entries can't hold them",
                                              waiting_.size(), cqe));
    else
      cqe_.store(rounded(cqe), std::memory_order_relaxed);
  }
  conclude(failures);
  return result;
}

void CompletionQueue::drop_source(base::Slot slot, uint32_t epoch) {
  Failures failures;
  {
    const std::lock_guard lock(lock_);
    merge_locked(failures);  // what it delivered before it died counts
    std::erase_if(sources_, [&](const Source& source) {
      if (source.ring.slot != slot || source.ring.epoch != epoch) return false;
      process_.retire(source.ring);
      return true;
    });
    next_source_ = 0;
  }
  postpone(failures);
}

base::Result<InboundRing> CompletionQueue::inbound(base::Slot slot, uint32_t epoch) {
  const std::lock_guard lock(lock_);
  for (const auto& source : sources_)
    if (source.ring.slot == slot && source.ring.epoch == epoch) return source.ring;
  auto ring = process_.make_ring(slot, epoch, shape_for(cqe()));
  if (!ring) return ring;
  std::byte* memory = process_.arena().in_rings_heap(ring->offset, ring->shape.size());
  sources_.push_back({*ring, arena::RingConsumer(memory, ring->shape)});
  return ring;
}

}  // namespace verbena::verbs
