// Starting the host agent from inside a program that knows nothing of it.
#pragma once

#include "base/result.hpp"

namespace verbena::client {

// Starts an agent and returns without waiting until it listens. The program sees no child: no SIGCHLD,
// nothing for its wait() calls. ENOENT: the agent's program isn't where it belongs.
[[nodiscard]] base::Result<void> launch_agent();

}  // namespace verbena::client
