#include "agent/cm_channels.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "ipc/channel.hpp"

namespace verbena::agent {
namespace {

constexpr size_t kMostChannels = 16'384;  // of one client: a synchronous id has one of its own
constexpr size_t kMostWaiting = 16'384;   // events of one channel

bool takes_events(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  return option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_SEQPACKET && option(SO_ACCEPTCONN) == 0;
}

}  // namespace

base::Result<void> CmChannels::add(cm::Client client, uint32_t channel, base::UniqueFd socket) {
  if (!takes_events(socket.get()))
    return base::fail(EINVAL, "an event channel is a Unix SEQPACKET socket, which this is not");
  if (has(client, channel))
    return base::fail(EEXIST, fmt::format("there is an event channel {} already", channel));
  const auto first = channels_.lower_bound({client, 0});
  const auto last = channels_.upper_bound({client, UINT32_MAX});
  if (static_cast<size_t>(std::distance(first, last)) >= kMostChannels)
    return base::fail(EMFILE, fmt::format("this process has {} event channels already", kMostChannels));
  channels_[{client, channel}] = {.socket = std::move(socket), .waiting = {}};
  return {};
}

bool CmChannels::has(cm::Client client, uint32_t channel) const {
  return channels_.contains({client, channel});
}

void CmChannels::close(const Key& key) {
  const auto found = channels_.find(key);
  if (found == channels_.end()) return;
  if (!found->second.waiting.empty()) loop_.unwatch(found->second.socket.get());
  channels_.erase(found);
}

void CmChannels::remove(cm::Client client, uint32_t channel) { close({client, channel}); }

void CmChannels::remove_all(cm::Client client) {
  std::vector<Key> keys;
  for (auto at = channels_.lower_bound({client, 0}); at != channels_.end() && at->first.first == client; ++at)
    keys.push_back(at->first);
  for (const Key& key : keys) close(key);
}

bool CmChannels::write(const cm::Notice& notice) {
  const Key key{notice.client, notice.channel};
  const auto found = channels_.find(key);
  if (found == channels_.end()) return true;
  Channel& channel = found->second;
  if (channel.waiting.empty()) {
    const auto sent = ipc::send(channel.socket.get(), notice.event);
    // A reader's end that is closed is as good as one that is never read.
    if (sent || sent.error().code != EAGAIN) return true;
    if (!loop_.watch_writable(channel.socket.get(), [this, key] { go_on(key); })) return false;
  }
  channel.waiting.push_back(notice.event);
  return channel.waiting.size() <= kMostWaiting;
}

void CmChannels::go_on(Key key) {
  const auto found = channels_.find(key);
  if (found == channels_.end()) return;
  auto& [socket, waiting] = found->second;
  while (!waiting.empty()) {
    const auto sent = ipc::send(socket.get(), waiting.front());
    if (!sent && sent.error().code == EAGAIN) return;
    waiting.pop_front();
  }
  loop_.unwatch(socket.get());
}

void CmChannels::forget(cm::Client client, uint32_t id) {
  for (auto at = channels_.lower_bound({client, 0}); at != channels_.end() && at->first.first == client;
       ++at) {
    auto& [socket, waiting] = at->second;
    if (waiting.empty()) continue;
    std::erase_if(waiting, [id](const ipc::CmEvent& event) { return event.id == id; });
    if (waiting.empty()) loop_.unwatch(socket.get());
  }
}

}  // namespace verbena::agent
