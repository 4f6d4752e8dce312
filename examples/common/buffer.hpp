// Registered memory for one message, and the pattern that it is filled with and checked against.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/handles.hpp"

namespace examples {

class Buffer {
 public:
  /// `access` is what ibv_reg_mr takes; a buffer that is only sent from needs 0. `sges` pieces of nearly
  /// equal length cover it.
  Buffer(ibv_pd* pd, std::size_t size, int access, uint32_t sges = 1);

  [[nodiscard]] std::span<std::byte> bytes() { return memory_; }
  [[nodiscard]] std::span<ibv_sge> sges() { return sges_; }
  [[nodiscard]] uint32_t lkey() const { return mr_->lkey; }
  [[nodiscard]] uint32_t rkey() const { return mr_->rkey; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(memory_.data()); }

 private:
  std::vector<std::byte> memory_;  ///< outlives its registration
  Mr mr_;
  std::vector<ibv_sge> sges_;
};

/// Fills with bytes that differ from place to place and from `seed` to `seed`.
void fill_pattern(std::span<std::byte> bytes, uint64_t seed);
/// Throws, and names the first byte that is wrong.
void verify_pattern(std::span<const std::byte> bytes, uint64_t seed);
/// Overwrites what a receive left, so that a message that never came can't pass for one.
void clear(std::span<std::byte> bytes);

}  // namespace examples
