// ibv_modify_cq: fewer events for many completions. Counts what own work completes; what a peer process
// delivers by its ring rings at once, since it is the peer that rings.
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace verbena::verbs {

// With the completion queue's lock held.
class EventModeration {
 public:
  // Either 0 (or a count of 1): every completion is worth an event.
  void set(uint32_t count, base::Duration period) {
    count_ = count;
    period_ = period;
    held_ = 0;
  }
  [[nodiscard]] bool on() const { return count_ > 1 && period_ > base::Duration{}; }
  // One more that would ring. True: it does.
  [[nodiscard]] bool add(base::Instant now) {
    if (held_++ == 0) due_ = now + period_;
    if (held_ < count_ && now < due_) return false;
    held_ = 0;
    return true;
  }
  // The period is over for what was held back.
  [[nodiscard]] bool expire(base::Instant now) {
    if (held_ == 0 || now < due_) return false;
    held_ = 0;
    return true;
  }
  [[nodiscard]] bool holds() const { return held_ != 0; }
  [[nodiscard]] base::Instant due() const { return due_; }
  // The event is there without us.
  void forget() { held_ = 0; }

 private:
  uint32_t count_ = 0;
  base::Duration period_{};
  uint32_t held_ = 0;
  base::Instant due_{};
};

}  // namespace verbena::verbs
