#include "verbs/process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::verbs {
namespace {

// The first free number from `next` on, around once; EMPTY: none. Numbers rotate, so that late packets meet
// nobody for as long as possible.
base::Result<uint16_t> claim(std::vector<bool>& used, uint16_t& next, uint32_t first, const char* what) {
  for (size_t tries = 0; tries < used.size(); ++tries) {
    const uint16_t index = next++;
    if (index < first || used[index]) continue;
    used[index] = true;
    return index;
  }
  return base::fail(ENOMEM, fmt::format("this process has {} {} already", used.size() - first, what));
}

}  // namespace

Process::Process(arena::ProcessArena arena, base::Slot slot)
    : arena_(arena),
      slot_(slot),
      regions_(arena_),
      qps_(arena::kQpEntries),
      qp_used_(arena::kQpEntries),
      cq_used_(arena::kCqBells),
      next_qp_(static_cast<uint16_t>(base::random_u64())),
      srq_used_(arena::kSrqEntries),
      srqs_(arena::kSrqEntries) {
  regions_.set_settle([this] {
    for (const auto& queue : queues()) queue->merge();
  });
  arena_.head().own_address.store(reinterpret_cast<uint64_t>(&arena_.head()));
}

Process::~Process() = default;

base::Result<uint16_t> Process::claim_cq() {
  const std::lock_guard lock(mutex_);
  return claim(cq_used_, next_cq_, 0, "completion queues");
}

void Process::release_cq(uint16_t index) {
  const std::lock_guard lock(mutex_);
  cq_used_[index] = false;
}

base::Result<uint16_t> Process::claim_qp() {
  const std::lock_guard lock(mutex_);
  return claim(qp_used_, next_qp_, 2, "queue pairs");  // 0 and 1 are special everywhere
}

void Process::release_qp(uint16_t index) {
  const std::lock_guard lock(mutex_);
  qp_used_[index] = false;
}

base::Result<uint16_t> Process::claim_srq() {
  const std::lock_guard lock(mutex_);
  return claim(srq_used_, next_srq_, 0, "shared receive queues");
}

void Process::release_srq(uint16_t index) {
  const std::lock_guard lock(mutex_);
  srq_used_[index] = false;
}

void Process::add(const std::shared_ptr<SharedReceiveQueue>& queue) {
  const std::lock_guard lock(mutex_);
  // Now and then, as with completion queues below.
  if (shared_queues_.size() >= sweep_shared_at_) {
    std::erase_if(shared_queues_, [](const auto& known) { return known.expired(); });
    sweep_shared_at_ = std::max<size_t>(64, 2 * shared_queues_.size());
  }
  shared_queues_.push_back(queue);
}

std::vector<std::shared_ptr<SharedReceiveQueue>> Process::shared_queues() {
  std::vector<std::shared_ptr<SharedReceiveQueue>> found;
  const std::lock_guard lock(mutex_);
  for (const auto& known : shared_queues_)
    if (auto queue = known.lock()) found.push_back(std::move(queue));
  return found;
}

std::shared_ptr<SharedReceiveQueue> Process::hold_srq(uint32_t number) {
  for (auto& queue : shared_queues())
    if (queue->number() == number) return queue;
  return nullptr;
}

uint64_t Process::take_claims(uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto spare = spare_claims_.find(size);
  if (spare == spare_claims_.end()) return rings_heap_.allocate(size);
  const uint64_t offset = spare->second;
  spare_claims_.erase(spare);
  return offset;
}

void Process::keep_claims(uint64_t offset, uint64_t size) {
  const std::lock_guard lock(mutex_);
  spare_claims_.emplace(size, offset);
}

void Process::refresh_shared_later() {
  {
    const std::lock_guard lock(mutex_);
    refresh_due_ = true;
  }
  failing_any_.store(true);
  call_helper();
}

void Process::add(const std::shared_ptr<CompletionQueue>& queue) {
  const std::lock_guard lock(mutex_);
  // Those that are gone are swept out now and then: each time would make many queues slow to create.
  if (queues_.size() >= sweep_at_) {
    std::erase_if(queues_, [](const auto& known) { return known.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * queues_.size());
  }
  queues_.push_back(queue);
}

std::vector<std::shared_ptr<CompletionQueue>> Process::queues() {
  std::vector<std::shared_ptr<CompletionQueue>> found;
  const std::lock_guard lock(mutex_);
  for (const auto& known : queues_)
    if (auto queue = known.lock()) found.push_back(std::move(queue));
  return found;
}

bool Process::empty_rings(uint16_t cq) {
  for (const auto& queue : queues())
    if (queue->index() == cq) {
      queue->settle([] {});
      return true;
    }
  return false;
}

base::Result<InboundRing> Process::make_ring(base::Slot slot, uint32_t epoch, arena::RingShape shape) {
  const std::lock_guard lock(mutex_);
  InboundRing ring{.slot = slot, .epoch = epoch, .id = ++last_ring_id_, .shape = shape};
  const auto spare = std::ranges::find_if(retired_, [&](const InboundRing& r) {
    return r.slot == slot && r.epoch == epoch && r.shape.slots == shape.slots &&
           r.shape.payload == shape.payload;
  });
  if (spare != retired_.end()) {
    ring.offset = spare->offset;
    retired_.erase(spare);
  } else {
    ring.offset = rings_heap_.allocate(shape.size());
  }
  if (ring.offset == 0)
    return base::fail(ENOMEM,
                      "the completion queues of this process have used up their room; use fewer or "
                      "shallower ones");
  std::memset(arena_.in_rings_heap(ring.offset, shape.size()), 0, shape.size() - shape.payload);
  return ring;
}

void Process::retire(const InboundRing& ring) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(ring);
}

void Process::peer_gone(base::Slot slot, uint32_t epoch) {
  for (const auto& queue : queues()) queue->drop_source(slot, epoch);
  // What it was accessing when it died, it accesses no longer; the slot's next process begins with nothing.
  for (unsigned lane = 0; lane < arena::kHazardLanes; ++lane)
    for (auto& region : arena_.hazards(slot, lane).regions) region.release(0);
  for (const auto& queue : shared_queues()) queue->take_back_from(slot);
  const std::lock_guard lock(mutex_);
  std::erase_if(retired_, [&](const InboundRing& ring) {
    if (ring.slot != slot || ring.epoch != epoch) return false;
    rings_heap_.release(ring.offset);
    return true;
  });
}

bool Process::work(Wire::Driver driver) {
  bool done = false;
  if (postman_ != nullptr && postman_->has_letters()) done = postman_->read_letters();
  if (wire_active()) done |= wire_.load()->drive(base::now(), driver);
  if (pending_.any()) {
    pending_.step(base::now());
    done = true;
  }
  if (failing_any_.load(std::memory_order_relaxed) && failing_any_.exchange(false)) {
    fail_due();
    done = true;
  }
  return done;
}

void Process::fail_due() {
  std::vector<uint16_t> queues;
  std::vector<std::shared_ptr<QueuePair>> failing;
  bool refresh = false;
  {
    const std::lock_guard lock(mutex_);
    queues.swap(failing_cqs_);
    failing.swap(failing_qps_);
    refresh = std::exchange(refresh_due_, false);
  }
  if (refresh)
    for (const auto& queue : shared_queues()) queue->refresh();
  for (const auto& queue_pair : failing) queue_pair->fail_as_responder();
  if (queues.empty()) return;
  for (const auto& queue_pair : queue_pairs())
    for (const uint16_t index : queues)
      if (queue_pair->config().send_cq->index() == index || queue_pair->config().recv_cq->index() == index)
        queue_pair->fail_for_overrun();
}

std::vector<std::shared_ptr<QueuePair>> Process::queue_pairs() {
  std::vector<std::shared_ptr<QueuePair>> found;
  const std::lock_guard lock(mutex_);
  for (uint32_t index = 0; index < qps_.size(); ++index)
    if (qp_used_[index])
      if (QueuePair* queue_pair = qps_[index].load(); queue_pair != nullptr)
        if (auto held = queue_pair->weak_from_this().lock()) found.push_back(std::move(held));
  return found;
}

// Under the mutex that release_qp() needs: a queue pair that is found isn't freed meanwhile.
std::shared_ptr<QueuePair> Process::hold_qp(uint32_t number) {
  const std::lock_guard lock(mutex_);
  QueuePair* queue_pair = find_qp(number);
  return queue_pair != nullptr ? queue_pair->weak_from_this().lock() : nullptr;
}

void Process::fail_users_later(CompletionQueue& queue) {
  {
    const std::lock_guard lock(mutex_);
    failing_cqs_.push_back(queue.index());
  }
  failing_any_.store(true);
  call_helper();
}

void Process::fail_later(std::shared_ptr<QueuePair> queue_pair) {
  {
    const std::lock_guard lock(mutex_);
    failing_qps_.push_back(std::move(queue_pair));
  }
  failing_any_.store(true);
  call_helper();
}

// Nobody may poll any more.
void Process::call_helper() const {
  if (pending_.on_first != nullptr) pending_.on_first(pending_.context);
}

uint64_t Process::polls() {
  uint64_t total = 0;
  for (const auto& queue : queues()) total += queue->polls();
  return total;
}

// What peers left in the rings for receives in this region lands before it goes, and nobody relies on those
// that wait.
void Process::withdraw(uint32_t key) {
  for (const auto& queue : queues()) queue->merge();
  for (const auto& queue_pair : queue_pairs()) queue_pair->withdraw_promise(key);
}

base::Result<void> Process::deregister(uint32_t key) {
  withdraw(key);
  return regions_.remove(key);
}

base::Result<void> Process::reregister(uint32_t key, int mask, const RegionRequest& request) {
  withdraw(key);
  return regions_.change(key, mask, request);
}

}  // namespace verbena::verbs
