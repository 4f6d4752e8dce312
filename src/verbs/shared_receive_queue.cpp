#include "verbs/shared_receive_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/explain.hpp"
#include "base/random.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::verbs {

using arena::ClaimWord;

namespace {

constexpr uint32_t kMostEntries = kMaxSrqWr + 1;

base::Result<void> check(uint32_t max_wr, uint32_t max_sge) {
  if (max_wr == 0 || max_wr > uint32_t{kMaxSrqWr})
    return base::fail(EINVAL,
                      fmt::format("a shared receive queue's max_wr is 1 to {}, not {}", kMaxSrqWr, max_wr));
  if (max_sge > uint32_t{kMaxSrqSge})
    return base::fail(
        EINVAL, fmt::format("a shared receive queue's max_sge is at most {}, not {}", kMaxSrqSge, max_sge));
  return {};
}

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(Process& process, const Config& config, uint16_t index)
    : process_(process),
      config_(config),
      index_(index),
      slot_(process.slot()),
      entry_(process.arena().srq(index)),
      shared_(process.arena(), index) {}

base::Result<std::shared_ptr<SharedReceiveQueue>> SharedReceiveQueue::create(Process& process,
                                                                             const Config& config) {
  if (auto ok = check(config.max_wr, config.max_sge); !ok) return std::unexpected(ok.error());
  const auto index = process.claim_srq();
  if (!index) return std::unexpected(index.error());
  std::shared_ptr<SharedReceiveQueue> made(new SharedReceiveQueue(process, config, *index));
  arena::SrqEntry& entry = made->entry_;
  // One entry is always the reserve, which can't hold a receive yet.
  const uint32_t first = std::clamp(std::bit_ceil(config.max_wr + 1), arena::kSrqLeastFirst, kMostEntries);
  made->config_.max_sge = std::max(config.max_sge, 1u);
  entry.first.set(first);
  entry.stride.set(static_cast<uint32_t>(sizeof(arena::ReceiveEntry) +
                                         made->config_.max_sge * sizeof(arena::ReceivePiece)));
  entry.domain.set(config.domain->handle());
  entry.limit.set(0);
  for (auto& at : entry.entries_at) at.set(0);
  for (auto& at : entry.words_at) at.set(0);
  const uint64_t claims = process.take_claims(sizeof(arena::SrqClaims));
  entry.claims_at.set(claims);
  if (claims == 0) return base::fail(ENOMEM, "the rings of this process have no room for more queues");
  made->claims_ = made->shared_.claims();
  if (auto grown = made->grow(first); !grown) return std::unexpected(grown.error());
  made->max_wr_ = first - 1;
  made->reserve_ = made->free_.back();
  made->free_.pop_back();
  // Whoever is late with a claim in an earlier queue at this place finds no number that it knows.
  const auto begin = static_cast<uint32_t>(base::random_u64());
  entry.posted.set(begin);
  made->claims_->waiting.set(0);
  made->claims_->returned.set(0);
  made->claims_->head.release(arena::SrqHead{begin, made->reserve_}.pack());
  if (config.cq) {
    ++config.cq->users;
    entry.cq.set(config.cq->index());
    entry.ring_at.set(0);
    entry.xrcd.set(config.xrcd);
  }
  process.add(made);
  if (config.cq) process.publish_srq(*index, made.get());
  // Peers that know an earlier queue of this number see by it that they know nothing.
  entry.life.release(static_cast<uint32_t>(base::random_u64()) | 1);
  return made;
}

SharedReceiveQueue::~SharedReceiveQueue() {
  close();
  // The rings' blocks stay for other shared queues: somebody may be late with a claim.
  for (unsigned block = 0; block < arena::kSrqBlocks; ++block) {
    const uint32_t first = entry_.first.get();
    const uint64_t entries = block == 0 ? first : uint64_t{first} << (block - 1);
    if (const uint64_t at = entry_.entries_at[block].get(); at != 0) process_.tables_heap().release(at);
    if (const uint64_t at = entry_.words_at[block].get(); at != 0)
      process_.keep_claims(at, entries * sizeof(uint64_t));
    entry_.entries_at[block].set(0);
    entry_.words_at[block].set(0);
  }
  if (const uint64_t at = entry_.claims_at.get(); at != 0) process_.keep_claims(at, sizeof(arena::SrqClaims));
  entry_.claims_at.set(0);
  process_.release_srq(index_);
}

// Until there are so many.
base::Result<void> SharedReceiveQueue::grow(uint32_t entries) {
  const uint32_t first = entry_.first.get();
  while (kept_.size() < entries) {
    const auto place = arena::SharedReceives::place_of(first, static_cast<uint16_t>(kept_.size()));
    const uint64_t at = process_.tables_heap().allocate(uint64_t{place.block_entries} * entry_.stride.get());
    if (at == 0)
      return base::fail(ENOMEM,
                        "the receive queues of this process have used up their room; use shallower ones");
    const uint64_t words = process_.take_claims(uint64_t{place.block_entries} * sizeof(uint64_t));
    if (words == 0) {
      process_.tables_heap().release(at);
      return base::fail(ENOMEM, "the rings of this process have no room for more queues");
    }
    entry_.words_at[place.block].release(words);
    entry_.entries_at[place.block].release(at);
    const auto before = static_cast<uint32_t>(kept_.size());
    kept_.resize(before + place.block_entries);
    for (uint32_t i = place.block_entries; i > 0; --i) {
      const auto entry = static_cast<uint16_t>(before + i - 1);
      shared_.word(entry)->release(0);
      free_.push_back(entry);
    }
  }
  return {};
}

int SharedReceiveQueue::post(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  int error = 0;
  take_back_rest();
  {
    const std::lock_guard lock(lock_);
    for (ibv_recv_wr* next = requests; next != nullptr && error == 0; next = next->next)
      if (error = post_one(*next); error != 0) {
        if (bad != nullptr) *bad = next;
        base::explain(fmt::format(
            "SRQ 0x{:06x}: ibv_post_srq_recv refuses wr_id {}: {}", number(), next->wr_id,
            error == ENOMEM
                ? fmt::format("{} receives wait, as many as max_wr allows", outstanding_)
                : fmt::format("it has {} pieces where max_sge allows {}", next->num_sge, config_.max_sge)));
      }
  }
  // Who waits says so, then looks once more; we post, then look whether somebody waits.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (claims_->waiting.get() != 0) tell_waiting();
  return error;
}

int SharedReceiveQueue::post_one(const ibv_recv_wr& request) {
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > config_.max_sge) return EINVAL;
  if (outstanding_ >= max_wr_) return ENOMEM;
  (void)write_receive(process_.arena(), request, config_.domain->handle(), *shared_.entry(reserve_));
  publish(request.wr_id);
  ++outstanding_;
  return 0;
}

// The reserve, whose scatter list is written, joins the chain. Another one is free: max_wr leaves one over.
void SharedReceiveQueue::publish(uint64_t wr_id) {
  const uint16_t entry = reserve_;
  const uint32_t number = entry_.posted.get();
  reserve_ = free_.back();
  free_.pop_back();
  shared_.entry(entry)->next.set(reserve_);
  kept_[entry] = {.wr_id = wr_id, .number = number, .next = reserve_, .waits = true};
  shared_.word(entry)->release(ClaimWord{number, 0, 0, ClaimWord::State::kPosted}.pack());
  entry_.posted.release(number + 1);
}

void SharedReceiveQueue::free_entry(uint16_t entry) {
  kept_[entry].waits = false;
  shared_.word(entry)->release(0);
  free_.push_back(entry);
}

// At the end of the queue, in an entry that the chain leads to.
void SharedReceiveQueue::put_back(uint16_t entry) {
  const Kept kept = kept_[entry];
  // Its claimant may have died before it moved the head on.
  shared_.help({kept.number, entry}, kept.next);
  const arena::ReceiveEntry& from = *shared_.entry(entry);
  arena::ReceiveEntry& to = *shared_.entry(reserve_);
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(&from + 1);
  auto* copies = reinterpret_cast<arena::ReceivePiece*>(&to + 1);
  to.capacity.set(from.capacity.get());
  to.count.set(from.count.get());
  for (unsigned i = 0; i < from.count.get(); ++i) {
    copies[i].address.set(pieces[i].address.get());
    copies[i].length.set(pieces[i].length.get());
    copies[i].lkey.set(pieces[i].lkey.get());
  }
  free_entry(entry);
  publish(kept.wr_id);
}

bool SharedReceiveQueue::find_claimed(uint16_t entry, base::Slot by, base::Qpn queue_pair,
                                      ReceiveFront& out) {
  const std::lock_guard lock(lock_);
  if (entry >= kept_.size() || !kept_[entry].waits) return false;
  const ClaimWord claimed{kept_[entry].number, static_cast<uint16_t>(queue_pair.value), by.value,
                          ClaimWord::State::kClaimed};
  if (shared_.word(entry)->acquire() != claimed.pack()) return false;
  out = {kept_[entry].wr_id, shared_.entry(entry), entry};
  return true;
}

void SharedReceiveQueue::consume(uint16_t entry) {
  const std::lock_guard lock(lock_);
  --outstanding_;
  free_entry(entry);
  check_limit();
}

// Somebody may be copying into it at this very moment; whoever begins later sees that the target has gone.
bool SharedReceiveQueue::still_accessed(uint16_t entry, base::Slot by) const {
  const arena::ReceiveEntry& receive = *shared_.entry(entry);
  const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(&receive + 1);
  for (unsigned i = 0; i < receive.count.get(); ++i)
    if (process_.regions().accesses(pieces[i].lkey.get(), by)) return true;
  return false;
}

// True: some are back in the queue.
template <typename Wanted>
bool SharedReceiveQueue::take_back_if(Wanted wanted) {
  bool any = false;
  const std::lock_guard lock(lock_);
  for (size_t i = 0; i < kept_.size(); ++i) {
    const auto entry = static_cast<uint16_t>(i);
    if (!kept_[entry].waits) continue;
    const auto word = ClaimWord::unpack(shared_.word(entry)->acquire());
    if (word.number != kept_[entry].number || word.state == ClaimWord::State::kPosted || !wanted(word, entry))
      continue;
    put_back(entry);
    any = true;
  }
  return any;
}

void SharedReceiveQueue::take_back_from(base::Qpn queue_pair) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool any = take_back_if([&](const ClaimWord& word, uint16_t entry) {
    if (word.state == ClaimWord::State::kReturned) return true;
    if (word.qp != static_cast<uint16_t>(queue_pair.value)) return false;
    if (!still_accessed(entry, {word.slot})) return true;
    held_back_.store(true);
    return false;
  });
  if (any || held_back_.load()) process_.refresh_shared_later();
}

void SharedReceiveQueue::take_back_from(base::Slot slot) {
  if (take_back_if([&](const ClaimWord& word, uint16_t) {
        return word.slot == slot.value || word.state == ClaimWord::State::kReturned;
      }))
    process_.refresh_shared_later();
}

void SharedReceiveQueue::refresh() {
  take_back_rest();
  if (held_back_.load()) process_.refresh_shared_later();  // whoever still copies is done in a moment
  tell_waiting();
}

void SharedReceiveQueue::take_back_rest() {
  const bool returned = claims_->returned.get() != 0 && claims_->returned.atomic().exchange(0) != 0;
  if (!returned && !held_back_.load(std::memory_order_relaxed)) [[likely]]
    return;
  held_back_.store(false);
  const bool any = take_back_if([&](const ClaimWord& word, uint16_t entry) {
    if (word.state == ClaimWord::State::kReturned) return true;
    const auto target = arena::QpWord::unpack(process_.arena().qp(word.qp).word.acquire());
    const bool receives = config_.cq != nullptr || target.state == IBV_QPS_RTR ||
                          target.state == IBV_QPS_RTS || target.state == IBV_QPS_SQD ||
                          target.state == IBV_QPS_SQE || target.state == arena::QpWord::kChanging;
    if (receives) return false;
    if (!still_accessed(entry, {word.slot})) return true;
    held_back_.store(true);
    return false;
  });
  if (any) tell_waiting();
}

// Those that nobody has claimed. The head is anybody's word.
uint32_t SharedReceiveQueue::available() const {
  const uint32_t left = entry_.posted.get() - arena::SrqHead::unpack(claims_->head.acquire()).number;
  return std::min(left, outstanding_);
}

// IBA 10.2.9.2: once for each time that it is armed.
void SharedReceiveQueue::check_limit() {
  if (limit_ == 0 || available() >= limit_) return;
  limit_ = 0;
  entry_.limit.set(0);
  if (config_.events != nullptr)
    config_.events->push({IBV_EVENT_SRQ_LIMIT_REACHED, reinterpret_cast<uint64_t>(config_.element)});
}

base::Result<void> SharedReceiveQueue::modify(const ibv_srq_attr& wanted, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
    return base::fail(EINVAL, fmt::format("SRQ 0x{:06x}: the mask 0x{:x} has bits that aren't known",
                                          number(), static_cast<unsigned>(mask)));
  const std::lock_guard lock(lock_);
  uint32_t max_wr = max_wr_;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    if (auto ok = check(wanted.max_wr, config_.max_sge); !ok) return ok;
    max_wr = std::max(std::bit_ceil(wanted.max_wr + 1), arena::kSrqLeastFirst) - 1;
    if (outstanding_ > max_wr)
      return base::fail(EINVAL, fmt::format("SRQ 0x{:06x}: {} receives wait, {} places can't hold them",
                                            number(), outstanding_, max_wr));
  }
  if ((mask & IBV_SRQ_LIMIT) != 0 && wanted.srq_limit > max_wr)
    return base::fail(EINVAL, fmt::format("SRQ 0x{:06x}: srq_limit = {} is more than its max_wr, {}",
                                          number(), wanted.srq_limit, max_wr));
  if (auto grown = grow(max_wr + 1); !grown) return grown;
  max_wr_ = max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    limit_ = wanted.srq_limit;
    entry_.limit.atomic().store(limit_);
    check_limit();
  }
  return {};
}

ibv_srq_attr SharedReceiveQueue::query() {
  const std::lock_guard lock(lock_);
  return {.max_wr = max_wr_, .max_sge = config_.max_sge, .srq_limit = limit_};
}

void SharedReceiveQueue::join(base::Qpn queue_pair) {
  const std::lock_guard lock(lock_);
  users_.push_back(queue_pair);
}

void SharedReceiveQueue::leave(base::Qpn queue_pair) {
  const std::lock_guard lock(lock_);
  std::erase(users_, queue_pair);
}

size_t SharedReceiveQueue::users() {
  const std::lock_guard lock(lock_);
  return users_.size();
}

void SharedReceiveQueue::tell_waiting() {
  if (claims_->waiting.atomic().exchange(0) == 0) return;
  std::vector<base::Qpn> users;
  std::bitset<256> senders;
  {
    const std::lock_guard lock(lock_);
    users = users_;
    senders = senders_;
  }
  if (config_.cq) return process_.tell_posted(number(), senders);
  for (const base::Qpn user : users)
    if (const auto queue_pair = process_.hold_qp(user.value)) queue_pair->tell_waiting();
}

}  // namespace verbena::verbs
