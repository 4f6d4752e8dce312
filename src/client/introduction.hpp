// Getting to know another process of this host, so that the local path can reach it (DESIGN 2.3).
#pragma once

#include <sys/types.h>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::client {

// What a process gets of a peer: descriptors that stay good whatever becomes of the agent, and of the peer.
struct Introduction {
  base::UniqueFd tables;  // arena::kTablesSize bytes; can't be mapped for writing
  base::UniqueFd rings;   // arena::kRingsSize bytes, for reading and writing
  base::UniqueFd wake;    // see wake_peer(); POLLHUP: the peer is dead, has exec'ed, or gave its slot back
  base::UniqueFd memory;  // its /proc/self/mem, which ends with its address space; empty: it could give none
  pid_t pid = 0;          // here; 0: it is in another pid namespace
  uint64_t start_ticks = 0;  // of that pid, to tell the peer from a later process that gets its number
  uint32_t epoch = 0;        // of the slot: another process in the same slot has another one
};

// Asks the host agent, over a connection of its own, on the caller's thread; survives the agent's death,
// which may take some seconds. ESRCH: no process has that slot. EPERM: the two share no memory, being of
// different users or containers. EAGAIN: the peer has not come back to a restarted agent within two seconds.
// ENOTCONN: this process has no slot itself.
[[nodiscard]] base::Result<Introduction> introduce(base::Slot slot);
// The same for whoever has another way: of an agent that runs, and soon. ETIMEDOUT: not soon enough.
[[nodiscard]] base::Result<Introduction> introduce_soon(base::Slot slot);

// Wakes the helper thread of the peer whose wake socket this is. Never waits, raises no signal. False: the
// peer is gone.
bool wake_peer(int wake);

}  // namespace verbena::client
