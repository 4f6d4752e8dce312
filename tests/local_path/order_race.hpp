// The race of FACTS 4: programs poll on the last byte of what arrives, so everything before it must be there.
#pragma once

#include "local_path/rig.hpp"

namespace verbena::local_path {

// In the target's memory.
inline constexpr size_t kSeenAt = 0;        // the last round the watcher saw, for the writer to read
inline constexpr size_t kStopAt = 8;        // not 0: the writer has no more
inline constexpr size_t kWatchedAt = 4096;  // and on: what is written

struct RaceReport {
  uint64_t rounds = 0;
  uint64_t violations = 0;  // the last byte was new and another one wasn't
  uint64_t failures = 0;    // completions with an error
};

struct RacePlan {
  ibv_qp* pair = nullptr;
  Queue queue;
  const Memory* memory = nullptr;
  size_t offset = 0;  // into the page, so that ends fall on all kinds of places
  size_t size = 0;
  uint64_t rounds = 0;
  int64_t milliseconds = 0;
  uint64_t remote = 0;  // the peer's memory
  uint32_t key = 0;
};

// The target: sees each round's last byte come, looks at the others, says so.
[[nodiscard]] RaceReport watch(const RacePlan& plan);
// Its requester: writes a round, waits until the watcher saw it.
[[nodiscard]] RaceReport write_rounds(const RacePlan& plan);
// Reads from the peer, whose pages hold 1, 2, 3, ... each, while another thread of ours watches what arrives.
[[nodiscard]] RaceReport read_rounds(const RacePlan& plan);
inline constexpr size_t kReadPages = 8;
inline constexpr size_t kReadPage = 8192 + 64;

}  // namespace verbena::local_path
