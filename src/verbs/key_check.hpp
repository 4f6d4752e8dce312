// Looking a key up in a process's table of memory regions: the one check of key, bounds, access and domain.
#pragma once

#include <cstdint>

#include "arena/process_arena.hpp"
#include "engine/responder_actions.hpp"

namespace verbena::verbs {

struct Region {
  uint32_t index = 0;
  uint64_t address = 0;  // in the owner's address space, of the first byte asked for
  arena::MrMode mode{};
  uint64_t end = 0;  // of the region, in the owner's address space
};

struct KeyUse {
  uint32_t key = 0;
  uint64_t address = 0;  // as the region's iova counts
  uint64_t length = 0;
  uint32_t domain = 0;
  uint32_t access = 0;      // ibv_access_flags that must all be there
  uint32_t queue_pair = 0;  // number of the one that a peer's request came to; 0: our own use of an lkey
};

// kDone, kBadKey, kBadBounds, kNoAccess, kWrongDomain or kWrongQueuePair. Correct while the owner changes its
// table.
[[nodiscard]] engine::Verdict check_key(const arena::ProcessArena& owner, const KeyUse& use, Region& found);

// May a peer that is connected to this queue pair invalidate the key? kDone, kBadKey, kNotWindow,
// kWrongDomain or kWrongQueuePair.
[[nodiscard]] engine::Verdict check_invalidation(const arena::ProcessArena& owner, uint32_t key,
                                                 uint32_t domain, uint32_t queue_pair);

}  // namespace verbena::verbs
