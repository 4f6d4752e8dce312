// A process's counters by name, in its tables, where tools read them without asking it.
#pragma once

#include <cstdint>
#include <string_view>

#include "arena/shared_word.hpp"
#include "base/fixed_text.hpp"

namespace verbena::arena {

inline constexpr unsigned kMaxCounters = 64;

struct NamedCounter {
  Shared<uint64_t> value;
  char name[24];
};

// The owner adds names once and then only sets values; `count` is set after a name.
struct CounterTable {
  Shared<uint32_t> count;
  Shared<uint32_t> unused;
  NamedCounter counters[kMaxCounters];

  void set(unsigned place, std::string_view name, uint64_t value) {
    if (place >= kMaxCounters) return;
    if (place >= count.get()) {
      base::set_text(counters[place].name, name);
      count.release(place + 1);
    }
    counters[place].value.set(value);
  }
};

}  // namespace verbena::arena
