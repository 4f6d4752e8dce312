#include "verbs/scatter.hpp"

#include <algorithm>
#include <array>

#include "verbs/own_memory.hpp"

namespace verbena::verbs {
namespace {

// Proofs by page: a program's buffers are few and used again and again.
constexpr size_t kStamps = 64;
std::array<ProofStamp, kStamps> readable;
std::array<ProofStamp, kStamps> writable;

ProofStamp& stamp_for(std::array<ProofStamp, kStamps>& stamps, const void* data) {
  return stamps[(reinterpret_cast<uintptr_t>(data) >> 12) % kStamps];
}

}  // namespace

bool gather_own(std::byte* into, std::span<const iovec> from) {
  for (const auto& piece : from) {
    if (piece.iov_len == 0) continue;
    if (!fetch(into, piece.iov_base, piece.iov_len, stamp_for(readable, piece.iov_base))) return false;
    into += piece.iov_len;
  }
  return true;
}

bool scatter_own(std::span<const iovec> into, const std::byte* from, uint64_t length, engine::Tail tail) {
  for (const auto& piece : into) {
    const size_t part = std::min<uint64_t>(piece.iov_len, length);
    if (part == 0) continue;
    length -= part;
    const auto order = length == 0 ? tail : engine::Tail::kAnyOrder;
    if (!place(piece.iov_base, from, part, order, stamp_for(writable, piece.iov_base))) return false;
    from += part;
  }
  return true;
}

bool copy_mapped(std::byte* theirs, std::span<const iovec> ours, engine::Tail tail, bool reading) {
  if (reading) return scatter_own(ours, theirs, total_length(ours), tail);
  size_t left = ours.size();
  for (const auto& piece : ours) {
    --left;
    if (piece.iov_len == 0) continue;
    // Their memory stays as long as it is sealed, ours may vanish: into ours by proof, from there on plainly.
    std::byte* end = theirs + piece.iov_len;
    const size_t last = left == 0 && tail == engine::Tail::kLast ? std::min<size_t>(piece.iov_len, 8) : 0;
    const iovec body{piece.iov_base, piece.iov_len - last};
    if (!gather_own(theirs, {&body, 1})) return false;
    if (last > 0) {
      std::array<std::byte, 8> word{};
      const iovec rest{static_cast<std::byte*>(piece.iov_base) + body.iov_len, last};
      if (!gather_own(word.data(), {&rest, 1})) return false;
      copy_in_order(end - last, word.data(), last, engine::Tail::kLast);
    }
    theirs = end;
  }
  return true;
}

}  // namespace verbena::verbs
