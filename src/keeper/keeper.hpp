// The keeper's connections: commands in, answers and events out. One thread.
#pragma once

#include <poll.h>

#include <map>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "ipc/channel.hpp"
#include "keeper/targets.hpp"

namespace verbena::keeper {

class Keeper {
 public:
  explicit Keeper(base::UniqueFd listener) : listener_(std::move(listener)), idle_since_(base::now()) {}
  // Until nobody has been connected for a while, or `stop` is readable.
  void run(int stop);

 private:
  struct Session {
    base::UniqueFd socket;
    Holdings holdings;
  };
  void accept();
  // False: the connection ended.
  [[nodiscard]] bool on_readable(Session& session);
  void on_message(Session& session, const ipc::Message& message);
  void tell_events(const Device& device);
  // Bad input ends the connection that sent it, and nothing else.
  template <typename Answer>
  void answer(Session& session, const base::Result<Answer>& result);

  base::UniqueFd listener_;
  std::map<int, Session> sessions_;
  Targets targets_;
  base::Instant idle_since_;
};

}  // namespace verbena::keeper
