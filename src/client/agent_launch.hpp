// Starting the host agent from inside a program that knows nothing of it.
#pragma once

#include <string>

#include "base/result.hpp"

namespace verbena::client {

// Starts an agent and returns without waiting until it listens. The program sees no child: no SIGCHLD,
// nothing for its wait() calls. ENOENT: the agent's program isn't where it belongs.
[[nodiscard]] base::Result<void> launch_agent();

// The same for the keeper of XRC domains, which is to listen at `name` and see our devices.
[[nodiscard]] base::Result<void> launch_keeper(const std::string& name);

}  // namespace verbena::client
