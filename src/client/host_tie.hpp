// The process's one attachment to its host: slot, segments, helper thread. Made with the first open device,
// given back a moment after the last one closed, renewed whenever the agent changed, and left behind by
// fork().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arena/device_table.hpp"
#include "arena/segment.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "client/agent_link.hpp"
#include "client/helper_work.hpp"
#include "net/link.hpp"

namespace verbena::client {

// Who hears of changes of the devices. Called by the helper thread, never while HostTie's lock is held.
class DeviceListener {
 public:
  virtual ~DeviceListener() = default;
  virtual void on_devices_changed(const arena::DeviceTable& before, const arena::DeviceTable& after) = 0;
  // The slot is lost for good: no queue pair of this process works any longer.
  virtual void on_slot_lost(const base::Error& error) = 0;
  // Another agent runs, and this process is attached to it. Who has to wait for it waits by `waiting`.
  virtual void on_agent_changed(const ipc::Waiting& /*waiting*/) {}
};

class HostTie {
 public:
  struct Claim {
    uint32_t slot = 0;
    uint32_t epoch = 0;  // tells this owner of the slot from others
  };

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
  [[nodiscard]] uint32_t epoch() const;
  // Both, as they belong together; nothing while the process has no slot.
  [[nodiscard]] std::optional<Claim> claim() const;
  [[nodiscard]] std::shared_ptr<const arena::DeviceTable> devices() const;
  // The slot's socket on the RoCEv2 port; -1: this host's port is another user's.
  [[nodiscard]] int roce_socket() const;
  // The process's own segments, writable; empty without an attachment. They stay where they are until the
  // last device is closed, whatever becomes of the agent.
  [[nodiscard]] std::span<std::byte> tables() const;
  [[nodiscard]] std::span<std::byte> rings() const;

  // A packet for another process of this host: the agent brings it there, if it can.
  void pass_on(const net::Received& stray);

  // What the helper thread is to do besides; nullptr: nothing. Dropped with the attachment. A call that is
  // under way may still be so when this returns; the thread then holds the object until it is over.
  void set_work(std::shared_ptr<HelperWork> work);
  // Makes the helper thread call HelperWork::help() soon. Cheap while it hasn't yet come round to the last
  // time.
  void wake_helper();

 private:
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

  // Peers and the agent hold copies of one end; the other is only ours, so its end is ours.
  struct WakePair {
    base::GuardedFd wake;   // a byte into this end
    base::GuardedFd woken;  // wakes the helper thread, which sleeps on this one
  };

  HostTie() = default;
  [[nodiscard]] base::Result<void> attach_first();
  void drop_attachment();  // with mutex_ held
  [[nodiscard]] base::Result<Connection> connect(const Claim* resume, base::Duration patience,
                                                 const ipc::Waiting& waiting);
  void abandon_in_child();

  // helper_thread.cpp
  [[nodiscard]] base::Result<void> start_helper();
  [[nodiscard]] base::Result<void> renew_wake();  // with mutex_ held
  void wake() const;                              // with mutex_ held
  void drain_wakes();
  void help();                                // the helper thread's body
  bool doze(int fd, base::Instant until);     // one round of work and sleep; true: `fd` has something to say
  void doze_on(int fd, base::Instant until);  // many, until it has
  bool detach_if_idle();                      // true: it detached, the thread ends
  void reconnect();
  void lose_slot(const base::Error& error);
  void on_message();
  void take_stray(const ipc::Message& message);
  void tell_change();

  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  // In this order, where more than one is held.
  std::mutex attach_mutex_;   // one thread attaches at a time; may be held for seconds
  std::mutex working_mutex_;  // held while the work is called: what it knows isn't unmapped meanwhile
  mutable std::mutex mutex_;  // all below; never held over a wait
  unsigned users_ = 0;
  bool attached_ = false;
  bool lost_ = false;  // the slot went to somebody else
  base::Instant idle_since_;
  arena::Mapping tables_;
  arena::Mapping rings_;
  base::GuardedFd tables_fd_;
  base::GuardedFd rings_fd_;
  base::GuardedFd memory_fd_;  // /proc/self/mem; empty where the sandbox forbids it
  Connection connection_;
  WakePair wake_;
  std::shared_ptr<HelperWork> work_;
  std::shared_ptr<const arena::DeviceTable> devices_;
  bool helper_runs_ = false;
  std::atomic<bool> wake_pending_ = false;  // a wake is on its way that help() has still to follow
  std::vector<pollfd> polled_;              // the helper thread's own: the agent, woken, the work's
  std::vector<DeviceListener*> listeners_;
  std::mutex
      listeners_mutex_;  // held while listeners are called, so that unlisten() waits for a call under way
};

}  // namespace verbena::client
