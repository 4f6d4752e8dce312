// The process's one attachment to its host: slot, segments, helper thread. Made with the first open device,
// given back a moment after the last one closed, renewed whenever the agent changed, and left behind by
// fork().
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arena/device_table.hpp"
#include "arena/segment.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "client/agent_link.hpp"

namespace verbena::client {

// Who hears of changes of the devices. Called by the helper thread, never while HostTie's lock is held.
class DeviceListener {
 public:
  virtual ~DeviceListener() = default;
  virtual void on_devices_changed(const arena::DeviceTable& before, const arena::DeviceTable& after) = 0;
  // The slot is lost for good: no queue pair of this process works any longer.
  virtual void on_slot_lost(const base::Error& error) = 0;
};

class HostTie {
 public:
  // Of this process: a child of fork() gets a new one. Never destroyed, since threads may use it while main
  // returns.
  [[nodiscard]] static std::shared_ptr<HostTie> instance();

  // Attaches, or shares the attachment that is there.
  [[nodiscard]] base::Result<void> acquire();
  void release();
  void listen(DeviceListener* listener);
  void unlisten(DeviceListener* listener);

  // False in a child of fork() for what its parent opened.
  [[nodiscard]] bool current() const;
  [[nodiscard]] base::Slot slot() const;
  [[nodiscard]] std::shared_ptr<const arena::DeviceTable> devices() const;
  // The slot's socket on the RoCEv2 port; -1: this host's port is another user's.
  [[nodiscard]] int roce_socket() const;

 private:
  struct Claim {
    uint32_t slot = 0;
    uint32_t epoch = 0;
  };
  // Everything one connection brings.
  struct Connection {
    base::GuardedFd socket;
    base::GuardedFd registry_fd;
    arena::Registry registry;
    uint32_t view = 0;
    Claim claim;
    base::GuardedFd park;
    base::GuardedFd roce_socket;
  };

  HostTie() = default;
  [[nodiscard]] base::Result<void> attach_first();
  void drop_attachment();  // with mutex_ held
  [[nodiscard]] base::Result<Connection> connect(const Claim* resume, base::Duration patience);
  [[nodiscard]] base::Result<void> start_helper();
  void abandon_in_child();

  void help();            // the helper thread's body
  bool detach_if_idle();  // true: it detached, the thread ends
  void reconnect();
  void on_message();
  void tell_change();
  void wake() const;

  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::mutex attach_mutex_;   // one thread attaches at a time; may be held for seconds
  mutable std::mutex mutex_;  // all below; never held over a wait
  unsigned users_ = 0;
  bool attached_ = false;
  bool lost_ = false;  // the slot went to somebody else
  base::Instant idle_since_;
  arena::Mapping tables_;
  arena::Mapping rings_;
  base::GuardedFd tables_fd_;
  base::GuardedFd rings_fd_;
  Connection connection_;
  base::GuardedFd wake_;   // a byte into this end
  base::GuardedFd woken_;  // wakes the helper thread, which sleeps on this one
  std::shared_ptr<const arena::DeviceTable> devices_;
  bool helper_runs_ = false;
  std::vector<DeviceListener*> listeners_;
  std::mutex
      listeners_mutex_;  // held while listeners are called, so that unlisten() waits for a call under way
};

}  // namespace verbena::client
