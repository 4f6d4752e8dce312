// The two segments of every process that has a slot (DESIGN 2.3). What lies behind the heads comes with the
// objects that need it; sizes are address space, not memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::arena {

inline constexpr size_t kTablesSize = size_t{64} << 20;
inline constexpr size_t kRingsSize = size_t{256} << 20;
inline constexpr char kTablesName[] = "verbena-tables";
inline constexpr char kRingsName[] = "verbena-rings";

// At the start of the tables: the owner writes, peers and the agent read.
struct TablesHead {
  uint64_t magic;
  uint32_t layout;
  std::atomic<uint32_t> slot;
  // How long packets for this process may still be under way after it died: the longest time-wait of a queue
  // pair it ever connected. 0: it never connected one, so its slot needs no quarantine.
  std::atomic<uint64_t> longest_timewait_ns;
};

inline constexpr uint64_t kTablesMagic = 0x736c6261546e6256;  // "VbnTabls"
inline constexpr uint32_t kTablesLayout = 1;

}  // namespace verbena::arena
