// Values for lies: what a hostile process may write where others read.
#pragma once

#include <cstdint>
#include <random>

#include "responder_script.hpp"

namespace verbena::verbs {

struct Random {
  explicit Random(uint32_t seed) : engine(seed) {}
  uint32_t below(uint64_t end) { return static_cast<uint32_t>(engine() % end); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  uint64_t any() { return uint64_t{engine()} << 32 | engine(); }
  // Small, at the borders of powers of two, or anything.
  uint64_t wild() {
    switch (below(4)) {
      case 0:
        return below(200);
      case 1:
        return (uint64_t{1} << below(64)) - below(3);
      case 2:
        return uint64_t{0} - below(100);
      default:
        return any();
    }
  }
  std::mt19937 engine;
};

inline uint16_t index_of(const Script& s) { return static_cast<uint16_t>(s.qp->number().value); }

}  // namespace verbena::verbs
