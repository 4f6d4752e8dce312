// A process's connection to the keeper of XRC domains and target queue pairs (ADR 0014), which is started
// when it is first needed. Any thread may call; all of it is slow path.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "ipc/channel.hpp"
#include "verbs/event_queue.hpp"

namespace verbena::client {

// Where the keeper listens: one for each user, pid namespace (others share no memory) and set of devices.
[[nodiscard]] std::string keeper_name();

class XrcLink {
 public:
  // ENOENT: the keeper's program isn't there; ETIMEDOUT: it doesn't come up.
  [[nodiscard]] static base::Result<std::shared_ptr<XrcLink>> open();
  ~XrcLink();
  XrcLink(const XrcLink&) = delete;
  XrcLink& operator=(const XrcLink&) = delete;

  struct Domain {
    uint32_t id = 0;
    base::Slot keeper;
  };
  // ibv_open_xrcd; `fd` -1: a private one. EAGAIN, EINVAL, EBADF.
  [[nodiscard]] base::Result<Domain> open_domain(int fd, int flags);
  void close_domain(uint32_t id);
  [[nodiscard]] base::Result<void> serve(uint32_t domain, uint32_t srq);

  struct Target {
    uint32_t qpn = 0;
    ibv_qp_state state = IBV_QPS_RESET;
  };
  [[nodiscard]] base::Result<Target> create_target(uint32_t domain, std::string_view device);
  [[nodiscard]] base::Result<Target> open_target(uint32_t domain, uint32_t qpn);
  void release_target(uint32_t qpn);
  // Either way `after` is what the queue pair has.
  [[nodiscard]] base::Result<void> modify(uint32_t qpn, const ibv_qp_attr& wanted, int mask,
                                          ibv_qp_attr& after);
  [[nodiscard]] base::Result<void> query(uint32_t qpn, ibv_qp_attr& attributes);

  // Who hears of events of a target queue pair; once for each handle.
  void listen(uint32_t qpn, verbs::EventQueue& events, void* element);
  void unlisten(const void* element);

  [[nodiscard]] bool lost() const { return watched_.load() < 0; }
  // The helper thread's: what to watch, -1: nothing; and what to do then.
  [[nodiscard]] int fd() const { return watched_.load(); }
  void read_events();

 private:
  struct Listener {
    uint32_t qpn = 0;
    verbs::EventQueue* events = nullptr;
    void* element = nullptr;
  };
  explicit XrcLink(base::UniqueFd socket);
  template <typename Answer, typename Command>
  [[nodiscard]] base::Result<Answer> ask(const Command& command);
  void on_event(const ipc::Message& message);
  void lose();

  std::atomic<int> watched_ = -1;
  std::mutex mutex_;  // all below
  base::GuardedFd socket_;
  bool lost_ = false;
  std::vector<Listener> listeners_;
};

}  // namespace verbena::client
