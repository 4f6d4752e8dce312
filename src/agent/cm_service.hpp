// Connection management for this host's processes: ties their commands and event channels, and QP1's MADs, to
// the manager (cm/). Runs in the agent's one thread.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/cm_channels.hpp"
#include "agent/event_loop.hpp"
#include "base/time.hpp"
#include "cm/manager.hpp"
#include "ipc/channel.hpp"

namespace verbena::agent {

class CmService {
 public:
  using Log = std::function<void(std::string_view)>;
  // Sends a MAD to the QP1 of another host.
  using Send = std::function<void(const cm::Outgoing&)>;
  CmService(EventLoop& loop, Log log, Send send);

  // A process, by its CM connection; `pid` 0: one that we don't see.
  [[nodiscard]] cm::Client add_client(pid_t pid, uid_t uid);
  // Its ids end, and the other ends get to know.
  void end_client(cm::Client client);

  using Answer = std::variant<ipc::Done, ipc::CmBound>;
  // EPROTO: bad input, which closes the connection; other errors are answers.
  [[nodiscard]] base::Result<Answer> on_command(cm::Client client, ipc::Message& message);

  // False: not the connection manager's.
  bool on_mad(const cm::Way& way, std::span<const std::byte> mad);
  // Timers, and what commands and MADs led to. To be called before the loop waits.
  void go_on(base::Instant now);
  [[nodiscard]] std::optional<base::Instant> next_deadline() const;
  [[nodiscard]] bool in_use() const { return manager_.in_use(); }
  // Clients that let too many events lie: their connections are to be closed.
  [[nodiscard]] std::vector<cm::Client> take_cut_off() { return std::exchange(cut_off_, {}); }

 private:
  struct Process {
    pid_t pid = 0;
    uid_t uid = 0;
  };
  [[nodiscard]] base::Result<void> add_channel(cm::Client client, ipc::Message& message);
  [[nodiscard]] base::Result<void> need_channel(cm::Client client, uint32_t channel) const;

  Log log_;
  Send send_;
  CmChannels channels_;
  cm::Manager manager_;
  std::map<cm::Client, Process> clients_;
  cm::Client last_client_ = 0;
  std::deque<cm::Outgoing> to_ourselves_;
  std::vector<cm::Client> cut_off_;
};

// Whether this host has the address.
[[nodiscard]] bool is_own_address(const ipc::CmAddress& address);

}  // namespace verbena::agent
