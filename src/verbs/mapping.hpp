// What the kernel says of a place in our address space without a look at its pages: to whom it is mapped, and
// how far that goes. A question of the same price however long the range is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace verbena::verbs {

enum class Access : uint8_t { kRead, kWrite };

// A mapping that may be accessed so; an empty one: there is none at that place.
struct Mapping {
  uintptr_t first = 0;
  uintptr_t end = 0;
  // Of a file, which somebody may cut short: then pages aren't there though they are mapped.
  bool file = false;

  [[nodiscard]] bool covers(uintptr_t address, size_t length) const {
    return address >= first && address < end && length <= end - address;
  }
};

// Any thread. Nothing: the kernel is too old for the question (before 6.11), or it may not be asked.
[[nodiscard]] std::optional<Mapping> mapping_at(uintptr_t address, Access access);

// A pid that names our address space, after any kind of fork().
[[nodiscard]] pid_t own_pid();

}  // namespace verbena::verbs
