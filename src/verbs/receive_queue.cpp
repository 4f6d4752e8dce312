#include "verbs/receive_queue.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "verbs/device_limits.hpp"
#include "verbs/key_check.hpp"
#include "verbs/scatter.hpp"

namespace verbena::verbs {

ibv_wc_status place_message(const arena::ProcessArena& arena, uint32_t domain,
                            std::span<const std::byte> bytes, const ReceiveFront& front) {
  uint64_t rest = bytes.size();
  if (rest > front.entry->capacity.get()) return IBV_WC_LOC_LEN_ERR;
  if (rest == 0) return IBV_WC_SUCCESS;
  std::array<iovec, kMaxSge> pieces;  // the first `used` of them; to clear them all would take longer
  unsigned used = 0;
  const unsigned count = front.entry->count.get();
  for (unsigned i = 0; i < count && rest > 0; ++i) {
    const auto& piece = front.pieces()[i];
    const uint64_t length = std::min<uint64_t>(rest, piece.length.get());
    Region region;
    // Looked up when the bytes land, not when the receive was posted: a region given back since is refused.
    const KeyUse use{piece.lkey.get(), piece.address.get(), length, domain, IBV_ACCESS_LOCAL_WRITE};
    if (check_key(arena, use, region) != engine::Verdict::kDone) return IBV_WC_LOC_PROT_ERR;
    pieces[used++] = {reinterpret_cast<void*>(region.address), length};
    rest -= length;
  }
  if (!scatter_own({pieces.data(), used}, bytes.data(), bytes.size(), engine::Tail::kLast))
    return IBV_WC_LOC_PROT_ERR;
  return IBV_WC_SUCCESS;
}

ReceiveQueue::ReceiveQueue(const arena::ProcessArena& arena, arena::Heap& heap, arena::QpEntry& entry,
                           uint32_t capacity, uint32_t max_sge)
    : arena_(arena),
      heap_(heap),
      entry_(entry),
      capacity_(std::bit_ceil(std::max(capacity, 1u))),
      max_sge_(max_sge),
      stride_(static_cast<uint32_t>(sizeof(arena::ReceiveEntry) +
                                    std::max(max_sge, 1u) * sizeof(arena::ReceivePiece))),
      wr_ids_(capacity_) {}

base::Result<std::unique_ptr<ReceiveQueue>> ReceiveQueue::create(const arena::ProcessArena& arena,
                                                                 arena::Heap& heap, arena::QpEntry& entry,
                                                                 uint32_t capacity, uint32_t max_sge) {
  std::unique_ptr<ReceiveQueue> queue(new ReceiveQueue(arena, heap, entry, capacity, max_sge));
  const uint64_t size = uint64_t{queue->capacity_} * queue->stride_;
  queue->offset_ = heap.allocate(size);
  if (queue->offset_ == 0)
    return base::fail(ENOMEM,
                      "the receive queues of this process have used up their room; use shallower ones");
  queue->entries_ = arena.in_tables_heap(queue->offset_, size);
  entry.receives_at.set(queue->offset_);
  entry.receives_mask.set(queue->capacity_ - 1);
  entry.receives_stride.set(queue->stride_);
  queue->clear();
  return queue;
}

ReceiveQueue::~ReceiveQueue() {
  if (offset_ != 0) heap_.release(offset_);
}

arena::ReceiveEntry* ReceiveQueue::at(uint32_t number) const {
  return reinterpret_cast<arena::ReceiveEntry*>(entries_ + uint64_t{number & (capacity_ - 1)} * stride_);
}

WrittenReceive write_receive(const arena::ProcessArena& arena, const ibv_recv_wr& request, uint32_t domain,
                             arena::ReceiveEntry& entry) {
  auto* pieces = reinterpret_cast<arena::ReceivePiece*>(&entry + 1);
  uint64_t bytes = 0;
  bool faulty = false;
  uint16_t count = 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length == 0) continue;
    Region region;
    faulty |= check_key(arena, {sge.lkey, sge.addr, sge.length, domain, IBV_ACCESS_LOCAL_WRITE}, region) !=
              engine::Verdict::kDone;
    pieces[count].address.set(sge.addr);
    pieces[count].length.set(sge.length);
    pieces[count].lkey.set(sge.lkey);
    ++count;
    bytes += sge.length;
  }
  const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX - 1));
  entry.capacity.set(capacity);
  entry.count.set(count);
  return {capacity, faulty};
}

int ReceiveQueue::post(const ibv_recv_wr& request, uint32_t domain) {
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > max_sge_) return EINVAL;
  const uint32_t number = entry_.posted.get();
  const uint32_t taken = taken_.load(std::memory_order_acquire);
  if (number - taken >= capacity_) return ENOMEM;

  const auto [capacity, faulty] = write_receive(arena_, request, domain, *at(number));
  wr_ids_[number & (capacity_ - 1)] = request.wr_id;

  // The promise to peers, before the credit that lets them rely on it. None where a key or range is wrong:
  // the message decides whether it gets there.
  const uint32_t promise = faulty ? 0 : capacity + 1;
  if (number == taken || promise < entry_.fits_plus_one.get()) entry_.fits_plus_one.set(promise);
  entry_.posted.release(number + 1);
  return 0;
}

ReceiveQueue::Front ReceiveQueue::front() const {
  const uint32_t number = taken_.load(std::memory_order_relaxed);
  return {wr_ids_[number & (capacity_ - 1)], at(number), 0};
}

void ReceiveQueue::withdraw_promise(uint32_t key) {
  const uint32_t end = entry_.posted.get();
  for (uint32_t number = taken_.load(); number != end; ++number) {
    const arena::ReceiveEntry* entry = at(number);
    const auto* pieces = reinterpret_cast<const arena::ReceivePiece*>(entry + 1);
    for (unsigned i = 0; i < entry->count.get(); ++i)
      if (pieces[i].lkey.get() == key) return entry_.fits_plus_one.set(0);
  }
}

void ReceiveQueue::clear() {
  entry_.fits_plus_one.set(0);
  taken_.store(0);
  entry_.posted.release(0);
}

}  // namespace verbena::verbs
