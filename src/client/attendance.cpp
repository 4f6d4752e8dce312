#include "client/attendance.hpp"

#include <algorithm>
#include <utility>

namespace verbena::client {

bool Attendance::look(base::Instant now, uint64_t polls, bool busy) {
  const uint64_t more = polls - std::exchange(polls_seen_, polls);
  const base::Duration since = now - std::exchange(looked_at_, now);
  if (more != 0 || busy) polled_at_ = now;
  const bool spins = !watches_ && more > static_cast<uint64_t>(since / kAtNothingElse);
  proven_ = spins ? std::min(proven_ + 1, kProven) : 0;
  return alone_ = now - polled_at_ >= pause_;
}

bool Attendance::may_look_on() {
  if (sharing_ == 0) return true;
  --sharing_;
  return false;
}

// Another thread had the core, perhaps the very one that waits for us: asleep we get it back sooner, when
// something comes, than in a queue behind it.
bool Attendance::yielded(base::Duration away) {
  if (away <= kShared) return false;
  sharing_ = kForAWhile;
  return true;
}

void Attendance::worked_alone(bool worked) {
  pause_ = kAfterLastPoll;
  used_ = {};  // what we do alone is no part of it
  if (!std::exchange(suspects_, false) || !worked) return;
  watches_ = true;
  in_vain_ = trust_ = 0;
}

Attendance::Advice Attendance::stand_by(base::Instant now, bool busy, base::Instant driven_at) {
  if (watches_) {
    // Whoever polls takes what has come, even if it is about to wait for this very core.
    there_ = busy || now - driven_at < kDoubt;
    if (there_ && ++in_vain_ == kPatience) {
      watches_ = false;
      return {};
    }
    if (busy) return {.rest = kDoubt};
    alone_ = true;
    return {.step = Step::kDrive, .rest = kDoubt};
  }
  // It polled on after the last doubt: that one was unfounded, and the next comes later.
  if (std::exchange(suspects_, false)) trust_ = std::min(trust_ * 2 + 1, kMostTrust);
  if (trust_ > 0 && trusted_++ < trust_) return {};
  trusted_ = 0;
  return {.step = Step::kLookAtSocket};
}

base::Duration Attendance::saw_packets(bool any) {
  suspects_ = any;
  return any ? kDoubt : kAfterLastPoll;
}

// Only looks that follow each other without any work tell what standing by costs, the wake included.
base::Duration Attendance::pause(base::Duration least, base::Duration used) {
  pause_ = least;
  const base::Duration before = std::exchange(used_, weighs_time() ? used : base::Duration{});
  if (relies()) pause_ = least = std::max(least, kRarely);
  if (weighs_time() && before != base::Duration{})
    pause_ = std::max(least, std::min(kShare * (used - before), kLongestPause));
  return pause_;
}

}  // namespace verbena::client
