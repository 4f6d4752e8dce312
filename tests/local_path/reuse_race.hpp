// Once its completion was taken, a receive's buffer is the program's again: nothing may land in it any more.
#pragma once

#include "local_path/rig.hpp"

namespace verbena::local_path {

inline constexpr size_t kReuseBytes = 8192;    // of the receive, at the front of the memory
inline constexpr size_t kReuseReadAt = 16384;  // what the sender reads, or adds to, behind each message
inline constexpr size_t kReuseMemory = 3 * 8192;

struct ReuseReport {
  uint64_t rounds = 0;
  uint64_t violations = 0;
  uint64_t failures = 0;
};

// Receives one message after the other and uses the buffer for something else at once.
[[nodiscard]] ReuseReport reuse_buffers(ibv_qp* pair, const Queue& queue, const Memory& memory,
                                        int64_t milliseconds);
// Sends them, each with a READ or an atomic behind it: before those, what was sent is to be in its place.
[[nodiscard]] ReuseReport send_and_fetch(ibv_qp* pair, const Queue& queue, const Memory& memory,
                                         uint64_t remote, uint32_t key, int64_t milliseconds);

}  // namespace verbena::local_path
