// Lists of pieces of memory: their lengths, their parts, and copies that don't go through another process.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/responder_actions.hpp"
#include "verbs/own_memory.hpp"

namespace verbena::verbs {

struct ScatterPiece {
  uint64_t address;
  uint64_t length;
  uint32_t key;
};

[[nodiscard]] inline uint64_t total_length(std::span<const iovec> pieces) {
  uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.iov_len;
  return total;
}

// From memory that is surely there.
inline void gather_plainly(std::byte* into, std::span<const iovec> from) {
  for (const auto& piece : from) {
    if (piece.iov_len == 0) continue;
    std::memcpy(into, piece.iov_base, piece.iov_len);
    into += piece.iov_len;
  }
}
// From our program's memory into ours. False: some of it isn't there. `known_end`: for one piece of a long
// message, the address up to which the rest of it may lie; 0: it is all.
[[nodiscard]] bool gather_own(std::byte* into, std::span<const iovec> from, uint64_t known_end = 0);
// The other way.
[[nodiscard]] bool scatter_own(std::span<const iovec> into, const std::byte* from, uint64_t length,
                               engine::Tail tail, uint64_t known_end = 0);
// Between our program's memory and a peer's that is mapped here.
[[nodiscard]] bool copy_mapped(std::byte* theirs, std::span<const iovec> ours, engine::Tail tail,
                               bool reading);

// `where` is aligned and may be written by anybody at the same time.
[[nodiscard]] inline uint64_t run_atomic(const engine::AtomicRequest& request, std::byte* where) {
  const AsAdapter as_adapter;
  std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(where));
  if (request.kind == engine::AtomicKind::kFetchAdd) return word.fetch_add(request.first);
  if (request.kind == engine::AtomicKind::kWrite) return word.exchange(request.first);
  uint64_t before = request.first;
  word.compare_exchange_strong(before, request.second);
  return before;
}

}  // namespace verbena::verbs
