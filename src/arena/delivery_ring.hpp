// The ring through which one peer process delivers to one completion queue: a single producer (that process,
// whose threads serialise on a lock of its own), a single consumer (the queue's owner, under the queue's
// lock). Content first, then one publishing store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "arena/shared_word.hpp"

namespace verbena::arena {

enum class RecordKind : uint8_t {
  kSend = 1,  // a message for a receive; its bytes are in the record or the ring's payload area
  kPlaced,    // a message whose bytes are in the receive's buffers already
  kWriteImm,  // an RDMA write's notice: consumes a receive, brings no bytes
  kFail,      // the responder's queue pair fails; `length` says why (an engine::FailReason)
  kDatagram,  // as kSend; before its bytes a word with the sender's queue pair number
};
enum RecordFlag : uint8_t {
  kHasImm = 1,
  kSolicited = 2,
  kHasInvalidate = 4,  // `imm` is the key that was invalidated
  kNamesReceive = 8,   // `receive` is the shared queue's entry that it consumes
  kForShared = 16,     // XRC: `incarnation` is the shared queue's index, `qp` a queue pair of the keeper's
};

// One message as it is told to the receiver.
struct Record {
  RecordKind kind{};
  uint8_t flags = 0;
  uint32_t qp = 0;           // the receiver's queue pair number
  uint32_t incarnation = 0;  // its life that was meant
  uint32_t length = 0;
  uint32_t imm = 0;  // in network byte order, as the program gave it
  uint16_t receive = 0;
};

inline constexpr uint32_t kBytesInSlot = 32;

struct alignas(64) RingSlot {
  Shared<uint32_t> publish;  // 1 + the number of the record that is in it
  Shared<uint32_t> qp;
  Shared<uint32_t> incarnation;
  Shared<uint32_t> length;
  Shared<uint32_t> imm;
  Shared<uint32_t> kind_flags;   // receive << 16 | kind << 8 | flags
  Shared<uint64_t> payload_end;  // where the payload area stands after this record
  std::byte bytes[kBytesInSlot];
};
static_assert(sizeof(RingSlot) == 64);

// At the ring's start; the consumer writes, the producer reads when its cached value says "full".
struct alignas(64) RingHead {
  Shared<uint32_t> consumed;  // records
  Shared<uint32_t> unused;
  Shared<uint64_t> payload_consumed;  // bytes
};

struct RingShape {
  uint32_t slots = 0;    // a power of two
  uint32_t payload = 0;  // bytes, a power of two; 0: none
  [[nodiscard]] uint64_t size() const {
    return sizeof(RingHead) + uint64_t{slots} * sizeof(RingSlot) + payload;
  }
  [[nodiscard]] bool sane() const;
};

class RingProducer {
 public:
  RingProducer(std::byte* memory, RingShape shape);

  // Both ask the consumer's word only when what is known looks full.
  [[nodiscard]] bool has_slot();
  // A contiguous piece of the payload area for `length` bytes; empty: no room now.
  [[nodiscard]] std::span<std::byte> payload_room(uint32_t length);

  // The bytes of a short record are written through this, right into the slot.
  [[nodiscard]] std::byte* slot_bytes() { return slot().bytes; }
  // After has_slot(); with payload_room()'s bytes filled if `payload` says so.
  void publish(const Record& record, bool payload);

  // The number that the next record gets.
  [[nodiscard]] uint32_t tail() const { return tail_; }
  [[nodiscard]] bool all_taken(uint32_t before);
  // Looks at a queue pair's records that weren't taken yet, the latest first.
  template <typename Look>
  void look_back(uint32_t qp, Look look) {
    refresh();
    for (uint32_t number = tail_; number != consumed_; --number)
      if (const RingSlot& slot = slots_[(number - 1) & (shape_.slots - 1)]; slot.qp.get() == qp)
        look(static_cast<RecordKind>(slot.kind_flags.get() >> 8 & 0xff),
             static_cast<uint16_t>(slot.kind_flags.get() >> 16));
  }

 private:
  [[nodiscard]] RingSlot& slot() { return slots_[tail_ & (shape_.slots - 1)]; }
  void refresh();

  RingHead* head_;
  RingSlot* slots_;
  std::byte* payload_;
  RingShape shape_;
  uint32_t tail_ = 0;
  uint32_t consumed_ = 0;  // as last seen
  uint64_t payload_tail_ = 0;
  uint64_t payload_consumed_ = 0;
  uint64_t payload_next_ = 0;  // the tail once the room last given is published
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(std::byte* memory, RingShape shape);

  struct Taken {
    Record record;
    std::span<const std::byte> bytes;  // valid until release(); may change under us, so copy once
    bool sane = false;                 // false: the producer lied about where the bytes are
  };
  [[nodiscard]] bool ready() const {
    return slots_ != nullptr && slots_[next_ & (shape_.slots - 1)].publish.acquire() == next_ + 1;
  }
  // After ready().
  [[nodiscard]] Taken take();
  // The record that was taken is done with: its room may be used again.
  void release();
  [[nodiscard]] uint32_t taken() const { return next_; }

 private:
  RingHead* head_ = nullptr;
  RingSlot* slots_ = nullptr;
  std::byte* payload_ = nullptr;
  RingShape shape_;
  uint32_t next_ = 0;
  uint64_t payload_next_ = 0;  // after the record that is being looked at
};

}  // namespace verbena::arena
