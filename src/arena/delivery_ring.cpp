#include "arena/delivery_ring.hpp"

#include <bit>

namespace verbena::arena {
namespace {

RingSlot* slots_of(std::byte* memory) { return reinterpret_cast<RingSlot*>(memory + sizeof(RingHead)); }
std::byte* payload_of(std::byte* memory, RingShape shape) {
  return memory + sizeof(RingHead) + uint64_t{shape.slots} * sizeof(RingSlot);
}

}  // namespace

bool RingShape::sane() const {
  return std::has_single_bit(slots) && slots <= (1u << 20) && payload <= (1u << 26) &&
         (payload == 0 || std::has_single_bit(payload));
}

RingProducer::RingProducer(std::byte* memory, RingShape shape)
    : head_(reinterpret_cast<RingHead*>(memory)),
      slots_(slots_of(memory)),
      payload_(payload_of(memory, shape)),
      shape_(shape) {}

void RingProducer::refresh() {
  // A value that can't be is ignored: the ring then looks full, which is the worst its owner can do to us.
  const uint32_t consumed = head_->consumed.acquire();
  if (tail_ - consumed <= tail_ - consumed_) consumed_ = consumed;
  const uint64_t bytes = head_->payload_consumed.acquire();
  if (payload_tail_ - bytes <= payload_tail_ - payload_consumed_) payload_consumed_ = bytes;
}

bool RingProducer::has_slot() {
  if (tail_ - consumed_ < shape_.slots) return true;
  refresh();
  return tail_ - consumed_ < shape_.slots;
}

bool RingProducer::all_taken(uint32_t before) {
  if (static_cast<int32_t>(consumed_ - before) >= 0) return true;
  refresh();
  return static_cast<int32_t>(consumed_ - before) >= 0;
}

std::span<std::byte> RingProducer::payload_room(uint32_t length) {
  if (length > shape_.payload / 2) return {};
  // Records start on a cache line and never wrap: the rest of a lap that is too short is skipped.
  uint64_t begin = (payload_tail_ + 63) & ~uint64_t{63};
  const uint64_t in_lap = begin & (shape_.payload - 1);
  if (in_lap + length > shape_.payload) begin += shape_.payload - in_lap;
  const uint64_t end = begin + length;
  if (end - payload_consumed_ > shape_.payload) refresh();
  if (end - payload_consumed_ > shape_.payload) return {};
  payload_next_ = end;
  return {payload_ + (begin & (shape_.payload - 1)), length};
}

void RingProducer::publish(const Record& record, bool payload) {
  RingSlot& target = slot();
  if (payload) payload_tail_ = payload_next_;
  target.qp.set(record.qp);
  target.incarnation.set(record.incarnation);
  target.length.set(record.length);
  target.imm.set(record.imm);
  target.kind_flags.set(uint32_t{record.receive} << 16 | static_cast<uint32_t>(record.kind) << 8 |
                        record.flags);
  target.payload_end.set(payload_tail_);
  ++tail_;
  target.publish.release(tail_);
}

RingConsumer::RingConsumer(std::byte* memory, RingShape shape)
    : head_(reinterpret_cast<RingHead*>(memory)),
      slots_(slots_of(memory)),
      payload_(payload_of(memory, shape)),
      shape_(shape) {}

RingConsumer::Taken RingConsumer::take() {
  const RingSlot& slot = slots_[next_ & (shape_.slots - 1)];
  Taken taken;
  const uint32_t kind_flags = slot.kind_flags.get();
  taken.record = {.kind = static_cast<RecordKind>(kind_flags >> 8 & 0xff),
                  .flags = static_cast<uint8_t>(kind_flags),
                  .qp = slot.qp.get(),
                  .incarnation = slot.incarnation.get(),
                  .length = slot.length.get(),
                  .imm = slot.imm.get(),
                  .receive = static_cast<uint16_t>(kind_flags >> 16)};
  const uint64_t end = slot.payload_end.get();
  const uint64_t before = payload_next_;
  if (taken.record.kind != RecordKind::kSend && taken.record.kind != RecordKind::kDatagram) {
    taken.sane = true;
  } else if (taken.record.length <= kBytesInSlot) {
    taken.bytes = {slot.bytes, taken.record.length};
    taken.sane = true;
  } else if (end - before <= shape_.payload && taken.record.length <= end - before) {
    // The producer doesn't wrap a record: nor may a lying one make us read past the area's end.
    const uint64_t begin = (end - taken.record.length) & (shape_.payload - 1);
    if (begin + taken.record.length <= shape_.payload) {
      taken.bytes = {payload_ + begin, taken.record.length};
      taken.sane = true;
    }
  }
  if (end - before <= shape_.payload) payload_next_ = end;
  return taken;
}

void RingConsumer::release() {
  ++next_;
  head_->payload_consumed.release(payload_next_);
  head_->consumed.release(next_);
}

}  // namespace verbena::arena
