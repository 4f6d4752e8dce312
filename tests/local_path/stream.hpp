// Traffic of every kind at random, whose every byte is checked: what two workers do to each other while one
// of them is killed.
#pragma once

#include "local_path/rig.hpp"

namespace verbena::local_path {

// How a stream's memory is used. Both ends have the same layout.
inline constexpr size_t kLargestMessage = 600 * 1024;  // more than the path copies in one go, and a rest
inline constexpr size_t kStreamReceives = 8;
inline constexpr size_t kStreamSlots = 4;   // operations under way at the same time
inline constexpr size_t kCounterAt = 0;     // the peer's atomics
inline constexpr size_t kLandingAt = 4096;  // the peer's writes, one place for each of its slots
inline constexpr size_t kReceivesAt = kLandingAt + kStreamSlots * kLargestMessage;
inline constexpr size_t kStagingAt = kReceivesAt + kStreamReceives * kLargestMessage;
inline constexpr size_t kReadBackAt = kStagingAt + kStreamSlots * kLargestMessage;
inline constexpr size_t kStreamBytes = kReadBackAt + kStreamSlots * kLargestMessage;

struct StreamPlan {
  ibv_qp* pair = nullptr;
  Queue queue;
  const Memory* memory = nullptr;
  uint64_t seed = 0;
  uint64_t peer_seed = 0;
  uint64_t peer_address = 0;
  uint32_t peer_key = 0;
  int64_t duration_us = 0;  // then it says goodbye and waits for the peer's
  bool sleeps = false;      // waits by events instead of polling
  bool passive = false;     // only receives, and ends when the time is over
};

struct StreamReport {
  int first_error = 0;          // an ibv_wc_status, of whatever was sent
  size_t flushed = 0;           // sends that ended after it
  size_t wrong_status = 0;      // ... with something else than a flush
  size_t done = 0;              // operations that ended well
  size_t received = 0;          // messages
  size_t bad = 0;               // of both, those that brought wrong bytes, or came in a wrong order
  size_t receives_waiting = 0;  // posted and not completed
  size_t receives_failed = 0;   // completed with an error
  size_t hung = 0;              // sends that never ended
};
std::ostream& operator<<(std::ostream& out, const StreamReport& report);

[[nodiscard]] StreamReport run_stream(const StreamPlan& plan);

}  // namespace verbena::local_path
