#pragma once

#include <unistd.h>

#include <cstdint>

namespace verbena::base {

[[nodiscard]] inline uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace verbena::base
