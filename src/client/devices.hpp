// What the ABI asks of the host: which devices there are, and a tie to one of them.
// Any thread may call; all of it is slow path.
#pragma once

#include <memory>
#include <string_view>

#include "arena/device_table.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/event_queue.hpp"

namespace verbena::client {

// The devices of this process's view. Starts the host agent if none runs; takes no slot.
[[nodiscard]] base::Result<std::shared_ptr<const arena::DeviceTable>> list_devices();

// One open device: holds the process's slot, gets the device's asynchronous events.
// After fork() the child's inherited ones are stale: every call on them fails with EIO, and closing is
// harmless.
class OpenDevice {
 public:
  // ENODEV: no such device; ENOMEM: no free slot.
  [[nodiscard]] static base::Result<std::unique_ptr<OpenDevice>> open(std::string_view name);
  // From a duplicate of some process's cmd_fd, which is ours from then on. EINVAL: that fd isn't one; it
  // stays the caller's.
  [[nodiscard]] static base::Result<std::unique_ptr<OpenDevice>> import(int cmd_fd);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  // As the agent sees the device now.
  [[nodiscard]] base::Result<arena::DeviceRecord> record() const;
  [[nodiscard]] base::Slot slot() const;
  [[nodiscard]] bool stale() const;  // inherited over fork()
  // ENOENT: this is another process's context, imported; its handles mean nothing here, or something else.
  [[nodiscard]] base::Result<void> importable() const;
  [[nodiscard]] int cmd_fd() const;
  [[nodiscard]] verbs::EventQueue& events();

 private:
  struct Impl;
  explicit OpenDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena::client
