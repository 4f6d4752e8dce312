// What the helper thread does for the data path while no thread of the program does it (DESIGN 2.5).
#pragma once

#include <poll.h>

#include <limits>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "net/link.hpp"

namespace verbena::client {

// An answer of HelperWork::help: nothing is due before somebody wakes the helper thread.
inline constexpr base::Instant kWhenWoken{std::numeric_limits<int64_t>::max()};

// Called on the helper thread, without HostTie's locks, while no agent runs as well. It may call HostTie, but
// not acquire(). Its destructor, too, may run on the helper thread; never in a child of fork(), which leaks
// it.
class HelperWork {
 public:
  virtual ~HelperWork() = default;
  // Does what is due, in pieces: other things wait meanwhile. Called after every wake, whoever woke, and
  // before every sleep; so what it leaves in memory for those who wake (who sleeps, who doesn't) is true when
  // it returns. Tells when to call again at the latest; an instant in the past: at once.
  virtual base::Instant help(base::Instant now) = 0;
  // Adds descriptors whose events should wake the helper thread: peers' wake sockets, with no event asked
  // for, since POLLHUP comes unasked. One that has hung up is not to be added again, or there would be no
  // sleep.
  virtual void watch(std::vector<pollfd>& into) = 0;
  // A packet for this process that another one got.
  virtual void on_stray(const net::Received&) {}
  // Something happened at one of them: exactly those it added, in its order, with revents. help() follows.
  virtual void on_events(std::span<const pollfd> watched) = 0;
};

}  // namespace verbena::client
