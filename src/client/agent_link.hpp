// A connection to the host agent, past its Hello.
#pragma once

#include <string>

#include "arena/registry.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "ipc/channel.hpp"
#include "ipc/messages.hpp"

namespace verbena::client {

enum class Start : uint8_t { kIfNeeded, kNever };

struct AgentLink {
  base::UniqueFd socket;
  base::UniqueFd registry_fd;
  arena::Registry registry;
  ipc::Welcome welcome;
};

// The devices this process is to see: VERBENA_DEVICES, or the default.
[[nodiscard]] std::string wanted_devices();

struct LinkRequest {
  std::string devices;
  Start start = Start::kIfNeeded;
  int park = -1;  // a survivor's park, for an agent that looks for one
  // How long to wait for somebody else to start an agent before we do.
  base::Duration patience{0};
  base::Duration timeout = base::seconds(10);
  // What the calling thread does while it waits; each wait is short.
  ipc::Waiting waiting = ipc::wait_idly;
};
// ECONNREFUSED: no agent runs and `start` says never. EACCES: the name is held by another user.
[[nodiscard]] base::Result<AgentLink> connect_agent(const LinkRequest& request);

}  // namespace verbena::client
