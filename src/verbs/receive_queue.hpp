// A queue of posted receives. The scatter lists lie in the tables, where a peer that places a long message
// reads them; wr_ids stay here.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "arena/heap.hpp"
#include "arena/process_arena.hpp"
#include "base/lock.hpp"
#include "base/result.hpp"

namespace verbena::verbs {

// What a receive that is posted says to those who place messages.
struct WrittenReceive {
  uint32_t capacity = 0;  // bytes in all
  bool faulty = false;    // a key or range of it is wrong
};
// Writes the scatter list into the entry; it has room for all pieces.
WrittenReceive write_receive(const arena::ProcessArena& arena, const ibv_recv_wr& request, uint32_t domain,
                             arena::ReceiveEntry& entry);

// A receive that a message has come for.
struct ReceiveFront {
  uint64_t wr_id = 0;
  const arena::ReceiveEntry* entry = nullptr;
  uint16_t index = 0;  // in a shared receive queue
  [[nodiscard]] const arena::ReceivePiece* pieces() const {
    return reinterpret_cast<const arena::ReceivePiece*>(entry + 1);
  }
};

// A short message's bytes into the receive's buffers. LOC_LEN_ERR: too many; LOC_PROT_ERR: the memory isn't
// in order.
[[nodiscard]] ibv_wc_status place_message(const arena::ProcessArena& arena, uint32_t domain,
                                          std::span<const std::byte> bytes, const ReceiveFront& front);

// Posting and taking may go on at the same time: post() under the queue's own lock, front() and pop() under
// the lock of the completion queue that it completes into.
class ReceiveQueue {
 public:
  // ENOMEM: the tables have no room.
  [[nodiscard]] static base::Result<std::unique_ptr<ReceiveQueue>> create(const arena::ProcessArena& arena,
                                                                          arena::Heap& heap,
                                                                          arena::QpEntry& entry,
                                                                          uint32_t capacity,
                                                                          uint32_t max_sge);
  ~ReceiveQueue();
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // EINVAL: more pieces than the queue was made for; ENOMEM: full.
  [[nodiscard]] int post(const ibv_recv_wr& request, uint32_t domain);

  using Front = ReceiveFront;
  [[nodiscard]] bool empty() const { return taken_.load(std::memory_order_relaxed) == posted(); }
  [[nodiscard]] Front front() const;
  void pop() { taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // If a receive that waits uses the key: peers may rely on none any longer. Under `lock`.
  void withdraw_promise(uint32_t key);
  // Nothing posted, and none ever: for RESET. Under `lock`.
  void clear();

  [[nodiscard]] uint32_t capacity() const { return capacity_; }
  [[nodiscard]] uint32_t max_sge() const { return max_sge_; }
  base::Lock lock;

 private:
  ReceiveQueue(const arena::ProcessArena& arena, arena::Heap& heap, arena::QpEntry& entry, uint32_t capacity,
               uint32_t max_sge);
  [[nodiscard]] arena::ReceiveEntry* at(uint32_t number) const;
  [[nodiscard]] uint32_t posted() const { return entry_.posted.acquire(); }

  const arena::ProcessArena& arena_;
  arena::Heap& heap_;
  arena::QpEntry& entry_;
  uint32_t capacity_;  // as asked for, at least
  uint32_t max_sge_;
  uint32_t stride_;
  uint64_t offset_ = 0;
  std::byte* entries_ = nullptr;
  std::vector<uint64_t> wr_ids_;
  std::atomic<uint32_t> taken_ = 0;
};

}  // namespace verbena::verbs
