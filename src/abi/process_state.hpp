// What a process has one of, however often and by whichever front the core was loaded.
#pragma once

#include <mutex>
#include <vector>

#include "abi/objects.hpp"

namespace verbena::abi {

struct ProcessState {
  // Guards all below, and the reference counts of devices and contexts. Never held over a call into client::,
  // which may start a process: fork() takes this lock, so that the child finds it free.
  std::mutex mutex;
  std::vector<Device*> devices;  // of the latest list; each held by one reference
  verbs::ProtectionDomains domains;
  std::vector<ibv_context*> cm_contexts;  // rdma_get_devices: opened once, for as long as the process lives
  std::vector<ibv_pd*> cm_domains;        // RDMA CM's own, one for each of those at most
  std::vector<ibv_xrcd*> cm_xrc_domains;  // as well
};

ProcessState& state();

// The devices as they are now, each with a reference for the caller. A device known before keeps its address.
[[nodiscard]] base::Result<std::vector<Device*>> acquire_devices();
void release_devices(const std::vector<Device*>& devices);
// The caller holds state().mutex.
void release_device_locked(Device& device);

}  // namespace verbena::abi
