// Datagrams from one process of this host to another: one box per pair of processes and direction, single
// producer, single consumer, in the receiver's rings. Records lie behind each other in cells of 64 bytes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "arena/process_segments.hpp"
#include "base/numbers.hpp"

namespace verbena::arena {

// What the headers of a packet would say.
struct DatagramHeader {
  uint16_t cells = 0;   // of the record, this one included
  uint16_t length = 0;  // of the payload that follows; kSkip: the box's end comes first, go on at its start
  uint32_t target = 0;
  uint32_t source = 0;
  uint32_t qkey = 0;
  uint32_t imm = 0;
  uint16_t pkey = 0;
  uint8_t flags = 0;  // DatagramFlags
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  std::array<uint8_t, 7> unused{};
  std::array<uint8_t, 16> from{};
  std::array<uint8_t, 16> to{};

  static constexpr uint16_t kSkip = 0xffff;
};
static_assert(sizeof(DatagramHeader) == 64);
enum DatagramFlags : uint8_t { kDatagramSolicited = 1, kDatagramImm = 2 };

struct DatagramBoxHead {
  alignas(64) Shared<uint32_t> consumed;  // cells ever, by the receiver
  alignas(64) Shared<uint32_t> written;   // cells ever, by the sender
};

inline constexpr size_t kCellBytes = 64;
inline constexpr uint32_t kBoxCells = 2048;  // a power of two: positions count for ever
static_assert(sizeof(DatagramBoxHead) + kBoxCells * kCellBytes <= kDatagramBoxSize);
inline constexpr uint32_t kLongestDatagram = 4096;
inline constexpr uint32_t kMostCells = 1 + kLongestDatagram / kCellBytes;

[[nodiscard]] inline uint32_t cells_for(size_t length) {
  return static_cast<uint32_t>(1 + (length + kCellBytes - 1) / kCellBytes);
}

class DatagramWriter {
 public:
  DatagramWriter() = default;
  explicit DatagramWriter(std::byte* memory)
      : head_(reinterpret_cast<DatagramBoxHead*>(memory)), cells_(memory + sizeof(DatagramBoxHead)) {
    // Goes on behind what an earlier process in our slot left.
    written_ = head_->written.acquire();
  }

  // Room for a record of any length.
  [[nodiscard]] bool has_room() {
    if (free_cells() >= 2 * kMostCells) return true;
    consumed_ = head_->consumed.acquire();
    return free_cells() >= 2 * kMostCells;
  }
  [[nodiscard]] uint32_t consumed() const { return head_->consumed.get(); }
  // After has_room(): where the payload of the next record goes.
  [[nodiscard]] std::span<std::byte> room(size_t length) {
    const uint32_t left = kBoxCells - written_ % kBoxCells;
    if (left < cells_for(length)) skip(left);
    return {cell(written_) + kCellBytes, length};
  }
  // The record whose payload lies in the room that was given last.
  void publish(DatagramHeader header) {
    header.cells = static_cast<uint16_t>(cells_for(header.length));
    put(header);
    head_->written.release(written_ += header.cells);
  }

 private:
  [[nodiscard]] uint32_t free_cells() const {
    const uint32_t used = written_ - consumed_;
    return used <= kBoxCells ? kBoxCells - used : 0;
  }
  [[nodiscard]] std::byte* cell(uint32_t number) { return cells_ + size_t{number % kBoxCells} * kCellBytes; }
  void put(const DatagramHeader& header) { *reinterpret_cast<DatagramHeader*>(cell(written_)) = header; }
  void skip(uint32_t cells) {
    put({.cells = static_cast<uint16_t>(cells), .length = DatagramHeader::kSkip});
    head_->written.release(written_ += cells);
  }

  DatagramBoxHead* head_ = nullptr;
  std::byte* cells_ = nullptr;
  uint32_t written_ = 0;
  uint32_t consumed_ = 0;  // as last seen
};

// What a sender wrote is copied out once and checked; lies cost no more than datagrams.
class DatagramReader {
 public:
  DatagramReader() = default;
  explicit DatagramReader(std::byte* memory)
      : head_(reinterpret_cast<DatagramBoxHead*>(memory)), cells_(memory + sizeof(DatagramBoxHead)) {}

  struct Taken {
    DatagramHeader header;
    std::span<const std::byte> payload;  // in the box: valid until done()
  };
  // The next one; nothing: empty.
  [[nodiscard]] std::optional<Taken> next() {
    while (head_ != nullptr) {
      const uint32_t waiting = head_->written.acquire() - consumed_;
      if (waiting == 0) return {};
      const std::byte* at = cells_ + size_t{consumed_ % kBoxCells} * kCellBytes;
      const DatagramHeader header = *reinterpret_cast<const DatagramHeader*>(at);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // what is checked is what is used
      const uint32_t left = std::min(waiting, kBoxCells - consumed_ % kBoxCells);
      const bool skips = header.length == DatagramHeader::kSkip;
      if (waiting > kBoxCells || header.cells == 0 || header.cells > left ||
          (!skips && (header.length > kLongestDatagram || header.cells != cells_for(header.length)))) {
        release(consumed_ + waiting);
        continue;
      }
      cells_taken_ = header.cells;
      if (!skips) return Taken{header, {at + kCellBytes, header.length}};
      done();
    }
    return {};
  }
  void done() { release(consumed_ + cells_taken_); }

 private:
  void release(uint32_t consumed) { head_->consumed.release(consumed_ = consumed); }

  DatagramBoxHead* head_ = nullptr;
  const std::byte* cells_ = nullptr;
  uint32_t consumed_ = 0;
  uint32_t cells_taken_ = 0;
};

}  // namespace verbena::arena
