// An event channel of RDMA CM, the process's half: a socketpair of which the program has one end and the
// agent a copy of the other (ipc/cm_messages.hpp).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::client {

// Any thread may call. Not one of these calls waits.
class CmChannel {
 public:
  [[nodiscard]] static base::Result<std::shared_ptr<CmChannel>> create(uint32_t number);
  ~CmChannel();
  CmChannel(const CmChannel&) = delete;
  CmChannel& operator=(const CmChannel&) = delete;

  [[nodiscard]] uint32_t number() const { return number_; }
  // What the program sees: readable while there are events. Closed with the channel.
  [[nodiscard]] int fd() const { return program_end_; }
  // What the agent gets a copy of; -1: the program closed it.
  [[nodiscard]] int agent_end() const { return agent_end_.get(); }

  // The oldest event. EAGAIN: there is none.
  [[nodiscard]] base::Result<ipc::CmEvent> take();
  // An event of the process's own.
  void leave(const ipc::CmEvent& event);
  // Events of an id that had another channel: older than all that this one has of it.
  void leave_first(const std::vector<ipc::CmEvent>& events);
  // Takes the events of an id out, in their order: it goes to another channel, or ends.
  [[nodiscard]] std::vector<ipc::CmEvent> extract(uint32_t id);
  // Looks at all events that wait, the oldest first.
  void look(const std::function<void(const ipc::CmEvent&)>& at);
  // The program's descriptor ends, and nothing else: threads that wait on it go on doing so, as the kernel
  // has it.
  void close_program_end();
  // In a child of fork(): gives up the inherited copy of the agent's end.
  void abandon() { agent_end_.reset(); }

 private:
  CmChannel(uint32_t number, int program_end, base::UniqueFd agent_end)
      : number_(number), program_end_(program_end), agent_end_(std::move(agent_end)) {}
  void absorb();       // all that waits, into held_
  void stand_in();     // a message in the socket for each event held, as far as it takes them
  void fill_socket();  // with the late ones

  const uint32_t number_;
  int program_end_;
  base::GuardedFd agent_end_;
  std::mutex mutex_;
  // Events that were in the socket, older than all that it has now. For each a message without meaning is in
  // the socket or owed to it, so that the descriptor is readable as long as there are events.
  std::deque<ipc::CmEvent> held_;
  size_t owed_ = 0;
  std::deque<ipc::CmEvent> late_;  // those that the socket has no room for yet
};

}  // namespace verbena::client
