// A request's own memory, checked: the parts of its pieces that a copy touches.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "arena/process_arena.hpp"
#include "engine/responder_actions.hpp"
#include "verbs/device_limits.hpp"
#include "verbs/queue_owner.hpp"
#include "verbs/send_path.hpp"

namespace verbena::verbs {

struct RequestSlice {
  std::array<iovec, kMaxSge> pieces;  // the first `count` of them; to clear them all would take longer
  unsigned count = 0;
  uint64_t end = 0;  // of the request's memory after a single piece that isn't its last; 0: nothing follows
  [[nodiscard]] std::span<const iovec> span() const { return {pieces.data(), count}; }
};

// Bytes `offset` to `offset + length` of the request's pieces, whose regions must be in the domain and allow
// the access (0: reading). kFaultHere: they don't.
[[nodiscard]] engine::Verdict slice_request(const arena::ProcessArena& arena, uint32_t domain,
                                            const SendRequest& request, uint64_t offset, uint64_t length,
                                            uint32_t access, RequestSlice& out);

// Before slice_request, so that nobody deregisters between the check and the copy. False: too many pieces.
[[nodiscard]] bool guard_request(HazardGuard& guard, const SendRequest& request);

}  // namespace verbena::verbs
