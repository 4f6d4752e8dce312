// A process's two segments as seen from here: our own, or a peer's. Offsets that a peer wrote are checked
// before they become pointers.
#pragma once

#include <span>

#include "arena/process_segments.hpp"
#include "base/numbers.hpp"

namespace verbena::arena {

class ProcessArena {
 public:
  ProcessArena() = default;
  // Both as large as process_segments.hpp says; whoever maps them checks that.
  ProcessArena(std::byte* tables, std::byte* rings) : tables_(tables), rings_(rings) {}
  explicit operator bool() const { return tables_ != nullptr; }

  [[nodiscard]] TablesHead& head() const { return *reinterpret_cast<TablesHead*>(tables_); }
  [[nodiscard]] QpEntry& qp(uint16_t index) const { return at<QpEntry>(tables_, kQpTableAt, index); }
  [[nodiscard]] CqEntry& cq(uint16_t index) const { return at<CqEntry>(tables_, kCqTableAt, index); }
  // `index` below kMrEntries.
  [[nodiscard]] MrEntry& mr(uint32_t index) const { return at<MrEntry>(tables_, kMrTableAt, index); }
  [[nodiscard]] SrqEntry& srq(uint16_t index) const { return at<SrqEntry>(tables_, kSrqTableAt, index); }

  [[nodiscard]] RingsHead& rings_head() const { return *reinterpret_cast<RingsHead*>(rings_); }
  [[nodiscard]] CqBell& bell(uint16_t cq) const { return at<CqBell>(rings_, kBellsAt, cq); }
  [[nodiscard]] QpBinding& binding(uint16_t qp) const { return at<QpBinding>(rings_, kBindingsAt, qp); }
  [[nodiscard]] HazardLane& hazards(base::Slot slot, unsigned lane) const {
    return at<HazardLane>(rings_, kHazardsAt, slot.value * kHazardLanes + lane);
  }
  [[nodiscard]] std::byte* inbox(base::Slot from) const {
    return rings_ + kInboxesAt + from.value * kInboxSize;
  }
  [[nodiscard]] std::byte* datagram_box(base::Slot from) const {
    return rings_ + kDatagramBoxesAt + from.value * kDatagramBoxSize;
  }

  // A piece of a heap; null where that isn't wholly inside it or not aligned to a cache line.
  [[nodiscard]] std::byte* in_tables_heap(uint64_t offset, uint64_t size) const {
    return piece(tables_, kTablesHeapAt, kTablesSize, offset, size);
  }
  [[nodiscard]] std::byte* in_rings_heap(uint64_t offset, uint64_t size) const {
    return piece(rings_, kRingsHeapAt, kRingsSize, offset, size);
  }

 private:
  template <typename T>
  static T& at(std::byte* segment, size_t table, size_t index) {
    return *reinterpret_cast<T*>(segment + table + index * sizeof(T));
  }
  static std::byte* piece(std::byte* segment, size_t begin, size_t end, uint64_t offset, uint64_t size) {
    if (offset < begin || offset > end || size > end - offset || offset % 64 != 0) return nullptr;
    return segment + offset;
  }

  std::byte* tables_ = nullptr;
  std::byte* rings_ = nullptr;
};

}  // namespace verbena::arena
