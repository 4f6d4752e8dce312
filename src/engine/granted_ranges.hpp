// Ranges of the peer's memory that it has let us write to, or read from, of late, by key.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::engine {

class GrantedRanges {
 public:
  [[nodiscard]] bool cover(uint32_t key, uint64_t address, uint64_t length) const {
    const Range& range = ranges_[place_of(key)];
    return range.key == key && range.begin <= address && address <= range.end &&
           length <= range.end - address;
  }
  // A key is good for one range, without gaps: so for what lies between two parts of it, too.
  void add(uint32_t key, uint64_t address, uint64_t length) {
    if (length == 0) return;  // of which no key is looked at
    Range& range = ranges_[place_of(key)];
    if (range.key != key || range.begin == range.end) range = {key, address, address};
    range.begin = std::min(range.begin, address);
    range.end = std::max(range.end, address + length);
  }

 private:
  struct Range {
    uint32_t key = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  static constexpr size_t kPlaces = 8;
  [[nodiscard]] static size_t place_of(uint32_t key) { return (key ^ key >> 8) % kPlaces; }

  std::array<Range, kPlaces> ranges_;
};

}  // namespace verbena::engine
