// Randomness from the kernel. Protocol code never calls this: it gets its randomness handed in (P5).
#pragma once

#include <cstdint>

namespace verbena::base {

uint64_t random_u64();

}  // namespace verbena::base
