// Whether the program polls, so that the helper thread can leave the work to it. Pure judgement: what was
// seen is handed in, what to do comes out. The helper thread's own.
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace verbena::client {

class Attendance {
 public:
  // While the program polls it does everything itself; so long after its last poll the helper steps in.
  static constexpr base::Duration kAfterLastPoll = std::chrono::microseconds(200);
  // The same where packets lie in the socket though the program polls.
  static constexpr base::Duration kDoubt = std::chrono::microseconds(20);
  // Who polls once in so long on average, at the least, is at nothing else. So many looks in a row that found
  // that, and nothing left undone, and looks are rare: each costs a program on the same core some messages.
  static constexpr base::Duration kAtNothingElse = std::chrono::microseconds(20);
  static constexpr unsigned kProven = 50;
  static constexpr base::Duration kRarely = base::milliseconds(1);
  // An acknowledgement that has waited so long for a post is sent without one. Sooner would be too soon for a
  // program that was just about to post when it lost its processor to us.
  static constexpr base::Duration kOverdue = std::chrono::microseconds(100);
  // A helper that stands by takes this part of a processor at most, for the program may poll on the same one.
  // It takes less where it can, but where a wake costs much (a machine that is emulated, or busy) it looks
  // less often.
  static constexpr int kShare = 16;
  static constexpr base::Duration kLongestPause = base::milliseconds(4);
  // Whoever has waited this long for its core back shares it, and doesn't look on for so many times.
  static constexpr base::Duration kShared = std::chrono::microseconds(100);
  static constexpr unsigned kForAWhile = 256;
  // The program was there itself so many times in a row: it needn't be watched.
  static constexpr unsigned kPatience = 8;
  static constexpr unsigned kMostTrust = 63;

  // With each look around: how often the program has polled so far. `busy`: one of its threads sends or takes
  // packets in at this moment, for one long poll or post may take a while by itself. True: nobody polls, and
  // the helper does the work.
  [[nodiscard]] bool look(base::Instant now, uint64_t polls, bool busy);
  // Nobody but the helper looks at the socket.
  [[nodiscard]] bool alone() const { return alone_; }
  // Something waited for the helper though the program polls, or it is about to stop polling.
  void left_undone() { proven_ = 0; }
  // The helper pauses for long, for the program will poll.
  [[nodiscard]] bool relies() const { return proven_ == kProven && weighs_time(); }
  [[nodiscard]] bool polled_since(uint64_t polls) const { return polls != polls_seen_; }

  // ---- Alone. ----
  // Something was found to do. May it wait for more a moment, awake?
  [[nodiscard]] bool may_look_on();
  // It offered its core to others, and was away for so long. True: it shares it, and shouldn't look on.
  [[nodiscard]] bool yielded(base::Duration away);
  // At the end. `worked`: something was found to do.
  void worked_alone(bool worked);

  // ---- Standing by, while the program polls and so sees to its own timers. ----
  enum class Step : uint8_t {
    kRest,
    kDrive,         // take packets in, in the program's stead; then drove()
    kLookAtSocket,  // are there packets? then saw_packets()
  };
  struct Advice {
    Step step = Step::kRest;
    base::Duration rest = kAfterLastPoll;  // the least that follows
  };
  // `driven_at`: when a thread that polls last began to take packets in.
  [[nodiscard]] Advice stand_by(base::Instant now, bool busy, base::Instant driven_at);
  void drove(bool found) {
    if (!found || there_) return;
    in_vain_ = 0;
    left_undone();
  }
  // The least rest that follows.
  [[nodiscard]] base::Duration saw_packets(bool any);

  // How long to pause. `used`: the processor's time of the helper thread so far, looked at only if
  // weighs_time().
  [[nodiscard]] bool weighs_time() const { return !watches_ && !suspects_; }
  [[nodiscard]] base::Duration pause(base::Duration least, base::Duration used);

 private:
  uint64_t polls_seen_ = 0;
  base::Instant looked_at_{};
  base::Instant polled_at_{};              // when they were last seen to have changed
  base::Duration pause_ = kAfterLastPoll;  // without a poll in so long we are alone
  base::Duration used_{};                  // the processor's time at the last pause; 0: there was none
  bool alone_ = true;                      // nobody else polls
  // A program that polls now and then but waits for a peer's WRITE in memory needs us in between: then we
  // watch the socket though it polls, as long as it isn't there when something comes. What it answers takes
  // our acknowledgement along, so its peer finds both with one poll, and soon neither needs a helper
  // (adr/0020).
  bool suspects_ = false;  // packets lay in the socket though it had polled
  bool watches_ = false;
  bool there_ = false;    // the program took packets in a moment ago
  unsigned in_vain_ = 0;  // times in a row that it was so
  unsigned trust_ = 0;    // rounds until the next doubt whether the program polls on
  unsigned trusted_ = 0;  // of them passed
  unsigned proven_ = 0;   // looks in a row that found the program at nothing else than polling
  unsigned sharing_ = 0;  // times that we do not look on, for another thread wants our core
};

}  // namespace verbena::client
