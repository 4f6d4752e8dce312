// The headers of a run's packets (next_in_run) as bytes, one packet's after the other's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce {

inline constexpr size_t kMostHeaderBytes = 64;  // of any packet

class RunHeaders {
 public:
  using Place = std::span<std::byte, kMostHeaderBytes>;

  // `first` is the first packet's, and as long as its opcode says.
  RunHeaders(std::span<const std::byte> first, size_t payload_bytes);

  [[nodiscard]] size_t bytes() const { return bytes_; }
  // The next packet's. Behind them the place is left as it may be.
  //
  // Nothing is read that was written lately: what was written in pieces is read as a whole only once it has
  // left the processor's store buffer.
  void next(Place into);

 private:
  std::array<std::byte, kMostHeaderBytes> first_{};
  size_t bytes_;
  uint32_t psn_;  // with the byte before it
  uint32_t psn_step_ = 1;
  size_t address_at_ = 0;  // 0: there is none
  uint64_t address_ = 0;
  uint64_t address_step_ = 0;
  // Answers in pairs:
  uint8_t opcode_ = 0;  // of the packet before; 0: it isn't one
  uint32_t aeth_ = 0;
};

}  // namespace verbena::roce
