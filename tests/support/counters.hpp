// What this process has counted, as `verbena counters` shows it.
#pragma once

#include <cstdint>
#include <string>

namespace verbena::support {

// It is shown a moment after it changed. 0: nothing was counted under that name.
[[nodiscard]] uint64_t counter(const std::string& name);

}  // namespace verbena::support
