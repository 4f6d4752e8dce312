// Letters from one process to another's helper or poller: what the sender can't do by itself in the other's
// memory. One ring per pair of processes and direction, single producer, single consumer.
#pragma once

#include <cstdint>

#include "arena/process_segments.hpp"

namespace verbena::arena {

enum class LetterKind : uint32_t {
  kAtomic = 1,  // please run this atomic operation on your memory
  kAnswer,      // what an atomic operation found
  kPosted,      // receives were posted for which you waited
  kMigration,   // `operation`: a verbs::MigrationWord
  // XRC. `qp` is the number of a shared receive queue of the addressee's, `incarnation` its life.
  kOpenLane,      // I want to deliver to it: please make me a ring
  kSharedAtomic,  // as kAtomic, in its protection domain
  kSharedPosted,  // a queue of the sender's has receives for which you waited
};

struct Letter {
  LetterKind kind{};
  uint32_t qp = 0;           // the addressee's queue pair number
  uint32_t incarnation = 0;  // its life that is meant
  uint32_t cookie = 0;       // given back with the answer
  uint32_t key = 0;
  uint32_t operation = 0;  // an engine::AtomicKind; kAnswer: an engine::Verdict
  uint64_t address = 0;
  uint64_t first = 0;   // compare or add; in an answer: what was there before
  uint64_t second = 0;  // swap
};

struct alignas(64) InboxSlot {
  Shared<uint32_t> publish;
  Shared<uint32_t> kind;
  Shared<uint32_t> qp;
  Shared<uint32_t> incarnation;
  Shared<uint32_t> cookie;
  Shared<uint32_t> key;
  Shared<uint32_t> operation;
  Shared<uint32_t> unused;
  Shared<uint64_t> address;
  Shared<uint64_t> first;
  Shared<uint64_t> second;
};
static_assert(sizeof(InboxSlot) == 64);

struct alignas(64) InboxHead {
  Shared<uint32_t> consumed;
};

inline constexpr uint32_t kInboxSlots = 128;
static_assert(sizeof(InboxHead) + kInboxSlots * sizeof(InboxSlot) <= kInboxSize);
// Requests under way from one process to another; answers then always find room in the other direction.
inline constexpr uint32_t kMostRequests = 48;

class InboxWriter {
 public:
  InboxWriter() = default;
  explicit InboxWriter(std::byte* memory)
      : head_(reinterpret_cast<InboxHead*>(memory)),
        slots_(reinterpret_cast<InboxSlot*>(memory + sizeof(InboxHead))) {}

  // Goes on behind what an earlier writer left: a process that had the slot before, and may have died.
  void resume() {
    tail_ = head_->consumed.acquire();
    for (uint32_t i = 0; i < kInboxSlots && slots_[tail_ % kInboxSlots].publish.acquire() == tail_ + 1; ++i)
      ++tail_;
  }

  // False: full.
  [[nodiscard]] bool write(const Letter& letter) {
    if (tail_ - head_->consumed.acquire() >= kInboxSlots) return false;
    InboxSlot& slot = slots_[tail_ % kInboxSlots];
    slot.kind.set(static_cast<uint32_t>(letter.kind));
    slot.qp.set(letter.qp);
    slot.incarnation.set(letter.incarnation);
    slot.cookie.set(letter.cookie);
    slot.key.set(letter.key);
    slot.operation.set(letter.operation);
    slot.address.set(letter.address);
    slot.first.set(letter.first);
    slot.second.set(letter.second);
    ++tail_;
    slot.publish.release(tail_);
    return true;
  }

 private:
  InboxHead* head_ = nullptr;
  InboxSlot* slots_ = nullptr;
  uint32_t tail_ = 0;
};

class InboxReader {
 public:
  InboxReader() = default;
  explicit InboxReader(std::byte* memory)
      : head_(reinterpret_cast<InboxHead*>(memory)),
        slots_(reinterpret_cast<InboxSlot*>(memory + sizeof(InboxHead))) {}

  [[nodiscard]] bool ready() const {
    return slots_ != nullptr && slots_[next_ % kInboxSlots].publish.acquire() == next_ + 1;
  }
  // After ready().
  [[nodiscard]] Letter read() {
    const InboxSlot& slot = slots_[next_ % kInboxSlots];
    const Letter letter{.kind = static_cast<LetterKind>(slot.kind.get()),
                        .qp = slot.qp.get(),
                        .incarnation = slot.incarnation.get(),
                        .cookie = slot.cookie.get(),
                        .key = slot.key.get(),
                        .operation = slot.operation.get(),
                        .address = slot.address.get(),
                        .first = slot.first.get(),
                        .second = slot.second.get()};
    ++next_;
    head_->consumed.release(next_);
    return letter;
  }

 private:
  InboxHead* head_ = nullptr;
  InboxSlot* slots_ = nullptr;
  uint32_t next_ = 0;
};

}  // namespace verbena::arena
