// Chance from a seed: the same numbers on every machine, unlike the standard library's distributions.
#pragma once

#include <cstdint>

namespace verbena::sim {

// splitmix64: also the hash behind patterns.
[[nodiscard]] constexpr uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mixed(seed)) {}

  uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15); }
  // 0 to limit - 1; limit is at least 1.
  uint64_t below(uint64_t limit) { return next() % limit; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  // True in so many of a million cases.
  bool millionths(uint32_t share) { return share != 0 && below(1'000'000) < share; }
  bool percent(uint32_t share) { return below(100) < share; }
  // Small numbers as likely as large ones: each power of two between the two has the same chance.
  uint64_t spread(uint64_t least, uint64_t most) {
    uint64_t steps = 0;
    while (most >> steps > least && steps < 63) ++steps;
    const uint64_t cap = most >> below(steps + 1);
    return between(least, cap < least ? least : cap);
  }
  // A stream of its own, so that what one part draws doesn't change what another one gets.
  Random fork() { return Random(next()); }

 private:
  uint64_t state_;
};

}  // namespace verbena::sim
