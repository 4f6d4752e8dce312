// The event channels of connection management's clients: events go out in order, none waits for a reader.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "agent/event_loop.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "cm/manager.hpp"

namespace verbena::agent {

class CmChannels {
 public:
  explicit CmChannels(EventLoop& loop) : loop_(loop) {}

  // EINVAL: not a socket that takes events; EEXIST: there is one of that number; EMFILE: too many.
  [[nodiscard]] base::Result<void> add(cm::Client client, uint32_t channel, base::UniqueFd socket);
  [[nodiscard]] bool has(cm::Client client, uint32_t channel) const;
  void remove(cm::Client client, uint32_t channel);
  void remove_all(cm::Client client);

  // What the socket has no room for is kept until it has. False: the client has let too much lie.
  [[nodiscard]] bool write(const cm::Notice& notice);
  // Events of an id that still lie here come to nobody.
  void forget(cm::Client client, uint32_t id);

 private:
  using Key = std::pair<cm::Client, uint32_t>;
  struct Channel {
    base::UniqueFd socket;
    std::deque<ipc::CmEvent> waiting;
  };
  void go_on(Key key);
  void close(const Key& key);

  EventLoop& loop_;
  std::map<Key, Channel> channels_;
};

}  // namespace verbena::agent
