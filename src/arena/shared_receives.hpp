// A shared receive queue in its owner's segments, as everybody sees it: where its entries lie, and how a
// requester claims one without ever waiting for another.
//
// Posted receives form a chain by ReceiveEntry::next; the last one's `next` is the entry that will be posted
// after it. SrqClaims::head names the first one that may be free. Whoever wants it writes its name into that
// entry's claim word by compare-and-swap, then moves the head on; whoever finds a head whose entry is claimed
// moves it on as well, so that one who dies between the two steps stops nobody. Numbers never repeat: what a
// late claimant saw doesn't match.
#pragma once

#include <bit>
#include <cstdint>

#include "arena/process_arena.hpp"
#include "base/numbers.hpp"

namespace verbena::arena {

struct ClaimWord {
  enum class State : uint8_t {
    kGone = 0,
    kPosted = 1,
    kClaimed = 2,
    kReturned = 3,  // its claimant won't use it
  };
  uint32_t number = 0;  // of the receive
  uint16_t qp = 0;      // the target's queue pair that it was claimed for
  uint8_t slot = 0;     // of the claimant's process
  State state = State::kGone;

  [[nodiscard]] uint64_t pack() const {
    return uint64_t{number} << 32 | uint64_t{qp} << 16 | uint64_t{slot} << 8 | static_cast<uint8_t>(state);
  }
  static ClaimWord unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint16_t>(word >> 16),
            static_cast<uint8_t>(word >> 8), static_cast<State>(word & 0xff)};
  }
};

struct SrqHead {
  uint32_t number = 0;
  uint16_t entry = 0;
  [[nodiscard]] uint64_t pack() const { return uint64_t{number} << 32 | entry; }
  static SrqHead unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint16_t>(word)};
  }
};

class SharedReceives {
 public:
  SharedReceives() = default;
  SharedReceives(const ProcessArena& arena, uint16_t index) : arena_(arena), entry_(&arena.srq(index)) {}
  explicit operator bool() const { return entry_ != nullptr; }

  // What the owner wrote makes sense. Asked before anything below is.
  [[nodiscard]] bool sane() const;
  // Null: there is no such entry.
  [[nodiscard]] ReceiveEntry* entry(uint16_t number) const;
  [[nodiscard]] Shared<uint64_t>* word(uint16_t number) const;
  [[nodiscard]] SrqClaims* claims() const {
    return reinterpret_cast<SrqClaims*>(arena_.in_rings_heap(entry_->claims_at.get(), sizeof(SrqClaims)));
  }
  [[nodiscard]] uint32_t domain() const { return entry_->domain.get(); }
  [[nodiscard]] uint32_t stride() const { return entry_->stride.get(); }
  [[nodiscard]] bool any_posted() const;

  enum class Claimed : uint8_t { kYes, kNone, kBusy, kCorrupt };
  struct Claim {
    uint16_t entry = 0;
    uint64_t word = 0;         // what stands in its claim word
    bool below_limit = false;  // the owner wants to know
  };
  // kBusy: too many others at the same time, try again.
  [[nodiscard]] Claimed claim(uint16_t qp, base::Slot ours, Claim& out) const;
  // It wasn't used. The owner puts it back when it next looks.
  void give_back(const Claim& claim) const;
  // If the head still stands at that entry: on to the next.
  void help(const SrqHead& head, uint16_t next) const;

  // In which block an entry lies, and where in it.
  struct Place {
    unsigned block = 0;
    uint32_t at = 0;
    uint32_t block_entries = 0;
  };
  [[nodiscard]] static Place place_of(uint32_t first, uint16_t number);

 private:
  ProcessArena arena_;
  SrqEntry* entry_ = nullptr;
};

}  // namespace verbena::arena
