// Bytes that tell where they belong: a function of a number and an offset, so that nobody has to keep them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "sim/random.hpp"

namespace verbena::sim {

template <typename Visit>
void for_pattern(uint64_t pattern, uint64_t offset, size_t length, Visit visit) {
  for (size_t done = 0; done < length;) {
    const uint64_t word = mixed(pattern + (offset + done) / 8);
    const size_t skip = (offset + done) % 8;
    const size_t part = std::min(length - done, 8 - skip);
    visit(done, reinterpret_cast<const std::byte*>(&word) + skip, part);
    done += part;
  }
}

inline void fill_pattern(uint64_t pattern, uint64_t offset, std::span<std::byte> into) {
  for_pattern(pattern, offset, into.size(), [&](size_t at, const std::byte* from, size_t length) {
    std::memcpy(into.data() + at, from, length);
  });
}

[[nodiscard]] inline bool is_pattern(uint64_t pattern, uint64_t offset, std::span<const std::byte> bytes) {
  bool same = true;
  for_pattern(pattern, offset, bytes.size(), [&](size_t at, const std::byte* from, size_t length) {
    same = same && std::memcmp(bytes.data() + at, from, length) == 0;
  });
  return same;
}

}  // namespace verbena::sim
