// The program's memory as a burst of packets meets it: looked up, guarded and proven for the first of them,
// used for all that follow in the same region.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/numbers.hpp"
#include "verbs/key_check.hpp"
#include "verbs/own_memory.hpp"
#include "verbs/queue_owner.hpp"

namespace verbena::verbs {

// A packet so long is likely to be one of many.
inline constexpr size_t kPartOfMore = 1024;

// While it lives, this thread keeps what it found, a region for each side. A region that is given back
// meanwhile waits for its end, so a burst is one turn of work and no longer.
class AccessBurst {
 public:
  AccessBurst() : outer_(current_) { current_ = this; }
  ~AccessBurst() { current_ = outer_; }
  AccessBurst(const AccessBurst&) = delete;
  AccessBurst& operator=(const AccessBurst&) = delete;

  struct Side {
    QueueOwner& owner;  // our own process
    base::Slot accessor;
    AccessSide side;
  };
  // Where those bytes lie, fit to be accessed plainly. Null: no burst goes on, or it isn't so simple.
  [[nodiscard]] static std::byte* find(const Side& side, const KeyUse& use, Access access) {
    return current_ == nullptr ? nullptr
                               : current_->held_[static_cast<size_t>(side.side)].find(side, use, access);
  }
  // What peers reach is to be looked up anew: a key has been invalidated.
  static void forget_targets() {
    if (current_ != nullptr) current_->held_[static_cast<size_t>(AccessSide::kTarget)].forget();
  }

 private:
  class Held {
   public:
    Held() {}  // not constexpr: the compiler would clear all of it, for nothing
    [[nodiscard]] std::byte* find(const Side& side, const KeyUse& use, Access access);
    void forget() {
      guard_.reset();
      found_.reset();
    }

   private:
    [[nodiscard]] std::byte* look_up(const Side& side, const KeyUse& use, Access access);

    // What was found, while it is guarded. Each turn begins with a burst, and most bursts find nothing: so
    // there is nothing to be cleared.
    struct Found {
      QueueOwner* owner;
      KeyUse use;  // its address and length: what was proven
      std::byte* base;
      uint64_t proven_at;
    };
    std::optional<HazardGuard> guard_;
    std::optional<Found> found_;
    MappingProof mapping_;
  };

  // Of the few bytes that a library loaded late may still have so: one load instead of a call.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local AccessBurst* current_ = nullptr;
  AccessBurst* outer_;
  std::array<Held, 2> held_;
};

}  // namespace verbena::verbs
