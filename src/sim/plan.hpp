// What one end of a connection will ask of the other, and how each request must end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request.hpp"
#include "sim/random.hpp"

namespace verbena::sim {

// Where the memory of every end lies. Keys are these plus the owner's base.
namespace region {
inline constexpr uint32_t kData = 1;          // all access
inline constexpr uint32_t kReadOnly = 2;      // holds its pattern for ever
inline constexpr uint32_t kForeign = 3;       // of another protection domain
inline constexpr uint32_t kFragile = 4;       // goes away while it is read
inline constexpr uint32_t kCounter = 5;       // one a host, for all ends there
inline constexpr uint32_t kKeysOfQueue = 16;  // XRC: the next queue's keys are so much higher
inline constexpr uint64_t kAddress = 0x10000;
inline constexpr uint64_t kCells = 8;  // words at the begin of kData that only atomics touch
inline constexpr uint64_t kCellBytes = kCells * 8;
}  // namespace region

struct Planned {
  engine::Request request;
  uint64_t pattern = 0;                                              // of its bytes
  engine::RequestStatus provoked = engine::RequestStatus::kSuccess;  // how it must end
  uint64_t unreadable_from = UINT64_MAX;                             // own memory ends there
  bool unwritable = false;                                           // own memory can't take the answer
  std::vector<std::byte> answer;                                     // what a READ or atomic must bring
  bool from_read_only = false;                                       // or the pattern of that region
  bool counts = false;                                               // one more at the host's counter
  uint64_t receive_bytes = 0;                                        // of the receive that it consumes
  bool starved = false;                                              // its receive never comes
};

struct PlanConfig {
  size_t requests = 10;
  uint64_t longest = 4096;
  uint64_t data_bytes = 1 << 16;  // of the peer's region
  uint64_t data_pattern = 0;      // what it holds in the beginning
  uint64_t read_only_pattern = 0;
  uint32_t key_base = 0;  // of the peer
  uint32_t counter_key = 0;
  uint32_t mtu = 1024;
  std::optional<engine::Request::Kind> only;  // all of this kind, as long as can be, and plain
  bool provokes = false;                      // one request is at fault
  bool may_starve = false;                    // RNR retries are finite
  uint64_t total_bytes = 1 << 20;             // budget
  uint32_t queues = 0;                        // XRC: shared receive queues of the peer's host
};

[[nodiscard]] std::vector<Planned> make_plan(const PlanConfig& config, Random random);

}  // namespace verbena::sim
