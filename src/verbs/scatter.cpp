#include "verbs/scatter.hpp"

#include <algorithm>
#include <array>

#include "verbs/own_memory.hpp"

namespace verbena::verbs {
namespace {

// Proofs by page for short messages, since a program's buffers are few and used again and again; by block for
// the pieces of long ones.
constexpr size_t kStamps = 64;
constexpr unsigned kPageBits = 12;
constexpr unsigned kBlockBits = 16;

struct Stamps {
  std::array<ProofStamp, kStamps> pages;
  std::array<ProofStamp, kStamps> blocks;

  ProofStamp& at(const void* data, bool of_long) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return of_long ? blocks[(address >> kBlockBits) % kStamps] : pages[(address >> kPageBits) % kStamps];
  }
};
Stamps readable;
Stamps writable;

// Where a proof that begins at `data` ends: with what is known to belong to the message's memory, or with the
// block. 0: nothing is known.
uintptr_t proof_end(const void* data, uint64_t known_end) {
  if (known_end == 0) return 0;
  const uintptr_t block_end = ((reinterpret_cast<uintptr_t>(data) >> kBlockBits) + 1) << kBlockBits;
  return std::min<uintptr_t>(block_end, known_end);
}

}  // namespace

bool gather_own(std::byte* into, std::span<const iovec> from, uint64_t known_end) {
  for (const auto& piece : from) {
    if (piece.iov_len == 0) continue;
    ProofStamp& stamp = readable.at(piece.iov_base, known_end != 0);
    const bool proven = stamp.covers(piece.iov_base, piece.iov_len, Access::kRead);
    if (!fetch(into, piece.iov_base, piece.iov_len, stamp, proof_end(piece.iov_base, known_end)))
      return false;
    if (!proven) StandingProofs::remember(stamp, piece.iov_base, piece.iov_len, Access::kRead);
    into += piece.iov_len;
  }
  return true;
}

bool scatter_own(std::span<const iovec> into, const std::byte* from, uint64_t length, engine::Tail tail,
                 uint64_t known_end) {
  for (const auto& piece : into) {
    const size_t part = std::min<uint64_t>(piece.iov_len, length);
    if (part == 0) continue;
    length -= part;
    const auto order = length == 0 ? tail : engine::Tail::kAnyOrder;
    ProofStamp& stamp = writable.at(piece.iov_base, known_end != 0);
    const bool proven = stamp.covers(piece.iov_base, part, Access::kWrite);
    if (!place(piece.iov_base, from, part, order, stamp, proof_end(piece.iov_base, known_end))) return false;
    if (!proven) StandingProofs::remember(stamp, piece.iov_base, part, Access::kWrite);
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
