// Ids: what clients name, and the ports they take.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "cm/manager.hpp"

namespace verbena::cm {
namespace {

constexpr uint16_t kFirstUnprivileged = 1024;
constexpr unsigned kMostBacklog = 1024;

}  // namespace

base::Result<Manager::Ids::iterator> Manager::find_id(Client client, uint32_t id) {
  const auto found = ids_.find({client, id});
  if (found == ids_.end()) return base::fail(EINVAL, fmt::format("there is no connection id {}", id));
  found->second.named = true;
  return found;
}

base::Result<Connection*> Manager::find_connection(Client client, uint32_t id) {
  const auto found = find_id(client, id);
  if (!found) return std::unexpected(found.error());
  const auto connection = connections_.find((*found)->second.connection);
  if (connection == connections_.end())
    return base::fail(EINVAL, fmt::format("connection id {} is not connected, nor about to be", id));
  return &connection->second;
}

Manager::Done Manager::add_id(IdKey key, Id id) {
  if (ids_of_[key.client] >= settings_.most_ids)
    return base::fail(ENOMEM, fmt::format("this process has {} connection ids already", settings_.most_ids));
  if (!ids_.emplace(key, id).second)
    return base::fail(EEXIST, fmt::format("there is a connection id {} already", key.id));
  ++ids_of_[key.client];
  return {};
}

Manager::Done Manager::create(Client client, const ipc::CmCreate& command) {
  if (command.id >= ipc::kFirstChild)
    return base::fail(EINVAL, fmt::format("connection id {} is the agent's to give", command.id));
  if (command.space < ipc::CmPortSpace::kTcp || command.space > ipc::CmPortSpace::kIpoib)
    return base::fail(EPROTONOSUPPORT, "an unknown port space");
  return add_id({client, command.id}, {.channel = command.channel, .space = command.space});
}

Manager::Done Manager::destroy(base::Instant now, Client client, const ipc::CmDestroy& command) {
  if (auto found = find_id(client, command.id); !found) return std::unexpected(found.error());
  end_id(now, {client, command.id});
  return {};
}

void Manager::end_id(base::Instant now, IdKey key) {
  const auto found = ids_.find(key);
  if (found == ids_.end()) return;
  const Id id = found->second;
  if (const auto connection = connections_.find(id.connection); connection != connections_.end())
    abandon(now, connection->second);
  if (id.taking != 0) {
    listeners_.erase(id.taking);
    ports_.release(id.taking);
  }
  ids_.erase(key);
  if (--ids_of_[key.client] == 0) ids_of_.erase(key.client);
  if (!id.listening) return;
  std::vector<IdKey> unheard;
  for (auto& [local_id, connection] : connections_) {
    if (connection.listener != key) continue;
    connection.listener = {};
    if (const auto child = ids_.find(connection.owner); child != ids_.end() && !child->second.named)
      unheard.push_back(connection.owner);
  }
  for (const IdKey child : unheard) end_id(now, child);
}

template <typename Which>
void Manager::end_ids(base::Instant now, Client client, Which which) {
  std::vector<IdKey> ending;
  for (auto at = ids_.lower_bound({client, 0}); at != ids_.end() && at->first.client == client; ++at)
    if (which(at->second)) ending.push_back(at->first);
  for (const IdKey key : ending) end_id(now, key);
}

void Manager::close_channel(base::Instant now, Client client, uint32_t channel) {
  end_ids(now, client, [channel](const Id& id) { return id.channel == channel; });
}

void Manager::end_client(base::Instant now, Client client) {
  end_ids(now, client, [](const Id&) { return true; });
}

Manager::Done Manager::migrate(Client client, const ipc::CmMigrate& command) {
  const auto found = find_id(client, command.id);
  if (!found) return std::unexpected(found.error());
  (*found)->second.channel = command.channel;
  return {};
}

base::Result<ipc::CmBound> Manager::bind(Client client, const ipc::CmBind& command, bool privileged) {
  const auto found = find_id(client, command.id);
  if (!found) return std::unexpected(found.error());
  Id& id = (*found)->second;
  const auto& address = command.address;
  if (address.family != AF_INET && address.family != AF_INET6)
    return base::fail(EAFNOSUPPORT, "only IPv4 and IPv6 addresses can be bound");
  if (id.taking != 0 || id.connection != 0)
    return base::fail(EINVAL, fmt::format("connection id {} is bound or connected already", command.id));
  if (!is_wildcard(address) && !environment_.is_local(address))
    return base::fail(EADDRNOTAVAIL, "that is no address of this host");
  if (address.port != 0 && address.port < kFirstUnprivileged && !privileged)
    return base::fail(EACCES, fmt::format("port {} needs CAP_NET_BIND_SERVICE", address.port));
  const auto taken = ports_.take({.space = id.space,
                                  .address = address,
                                  .reuse = command.reuse != 0,
                                  .family_only = command.family_only != 0},
                                 environment_.random());
  if (!taken) return std::unexpected(taken.error());
  id.taking = taken->taking;
  id.bound = address;
  id.bound.port = taken->port;
  return ipc::CmBound{.port = taken->port};
}

Manager::Done Manager::listen(Client client, const ipc::CmListen& command) {
  const auto found = find_id(client, command.id);
  if (!found) return std::unexpected(found.error());
  auto& [key, id] = **found;
  if (id.taking == 0 || id.connection != 0)
    return base::fail(
        EINVAL, fmt::format("connection id {} can't listen: it isn't bound, or is connected", command.id));
  if (auto listens = ports_.listen(id.taking); !listens) return listens;
  id.listening = true;
  id.backlog =
      command.backlog <= 0 ? kMostBacklog : std::min(static_cast<unsigned>(command.backlog), kMostBacklog);
  listeners_[id.taking] = key;
  return {};
}

bool Manager::in_use() const {
  return !ids_.empty() || std::ranges::any_of(connections_, [](const auto& entry) {
    return entry.second.state == State::kDreqSent;
  });
}

}  // namespace verbena::cm
