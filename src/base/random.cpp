#include "base/random.hpp"

#include <sys/random.h>

#include "base/time.hpp"

namespace verbena::base {

uint64_t random_u64() {
  uint64_t value = 0;
  // A kernel without getrandom still gets numbers that differ from call to call.
  if (::getrandom(&value, sizeof value, 0) != sizeof value)
    value = static_cast<uint64_t>(now().ns) * 0x9E3779B97F4A7C15u;
  return value;
}

}  // namespace verbena::base
