#include "agent/cm_service.hpp"

#include <fmt/format.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <string>

#include "base/random.hpp"

namespace verbena::agent {
namespace {

bool may_take_low_ports(pid_t pid, uid_t uid) {
  if (pid == 0) return uid == 0;
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kKey = "CapEff:";
    if (line.starts_with(kKey))
      return std::strtoull(line.c_str() + kKey.size(), nullptr, 16) >> CAP_NET_BIND_SERVICE & 1u;
  }
  return false;
}

ipc::CmAddress address_of(const cm::Gid& gid, uint32_t interface) {
  ipc::CmAddress address{.interface = interface};
  std::memcpy(address.bytes, gid.data(), gid.size());
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  address.family = std::memcmp(address.bytes, kMapped, sizeof kMapped) == 0 ? AF_INET : AF_INET6;
  return address;
}

// A command of exactly that kind and length, without descriptors.
template <typename M>
base::Result<M> read(const ipc::Message& message) {
  if (!message.fds.empty()) return base::fail(EPROTO, "a command brings descriptors that it doesn't need");
  return message.as<M>();
}

}  // namespace

bool is_own_address(const ipc::CmAddress& address) {
  // Asking the kernel is always up to date, and knows all of 127.0.0.0/8.
  base::UniqueFd probe(::socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  if (address.family == AF_INET) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    std::memcpy(&name.sin_addr, address.bytes + 12, sizeof name.sin_addr);
    return ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  }
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_scope_id = address.interface;
  std::memcpy(&name.sin6_addr, address.bytes, sizeof name.sin6_addr);
  return ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
}

CmService::CmService(EventLoop& loop, Log log, Send send)
    : log_(std::move(log)),
      send_(std::move(send)),
      channels_(loop),
      manager_({}, {.random = base::random_u64, .is_local = is_own_address}) {}

cm::Client CmService::add_client(pid_t pid, uid_t uid) {
  clients_[++last_client_] = {pid, uid};
  return last_client_;
}

void CmService::end_client(cm::Client client) {
  manager_.end_client(base::now(), client);
  channels_.remove_all(client);
  clients_.erase(client);
}

base::Result<void> CmService::add_channel(cm::Client client, ipc::Message& message) {
  const auto command = message.as<ipc::CmChannel>();
  if (!command || message.fds.size() != 1) return base::fail(EPROTO, "a CmChannel brings one descriptor");
  return channels_.add(client, command->channel, std::move(message.fds.front()));
}

base::Result<void> CmService::need_channel(cm::Client client, uint32_t channel) const {
  if (channels_.has(client, channel)) return {};
  return base::fail(EINVAL, fmt::format("there is no event channel {}", channel));
}

base::Result<CmService::Answer> CmService::on_command(cm::Client client, ipc::Message& message) {
  using ipc::Kind;
  const auto now = base::now();
  // Reads the command, gives it to `work`, and makes Done of its success.
  const auto run = [&]<typename M>(std::type_identity<M>, auto work) -> base::Result<Answer> {
    const auto command = read<M>(message);
    if (!command) return std::unexpected(command.error());
    if (const base::Result<void> done = work(*command); !done) return std::unexpected(done.error());
    return ipc::Done{};
  };
  const auto on_channel = [&]<typename M>(std::type_identity<M> type, auto work) {
    return run(type, [&](const M& command) -> base::Result<void> {
      if (auto has = need_channel(client, command.channel); !has) return has;
      return work(command);
    });
  };
  switch (message.kind) {
    case Kind::kCmChannel:
      if (auto added = add_channel(client, message); !added) return std::unexpected(added.error());
      return ipc::Done{};
    case Kind::kCmCloseChannel:
      return on_channel(std::type_identity<ipc::CmCloseChannel>(), [&](const auto& command) {
        manager_.close_channel(now, client, command.channel);
        channels_.remove(client, command.channel);
        return base::Result<void>();
      });
    case Kind::kCmCreate:
      return on_channel(std::type_identity<ipc::CmCreate>(),
                        [&](const auto& command) { return manager_.create(client, command); });
    case Kind::kCmMigrate:
      return on_channel(std::type_identity<ipc::CmMigrate>(),
                        [&](const auto& command) { return manager_.migrate(client, command); });
    case Kind::kCmResume:
      return on_channel(std::type_identity<ipc::CmResume>(),
                        [&](const auto& command) { return manager_.resume(now, client, command); });
    case Kind::kCmDestroy:
      return run(std::type_identity<ipc::CmDestroy>(), [&](const auto& command) {
        auto done = manager_.destroy(now, client, command);
        channels_.forget(client, command.id);
        return done;
      });
    case Kind::kCmBind: {
      const auto command = read<ipc::CmBind>(message);
      if (!command) return std::unexpected(command.error());
      const auto& process = clients_[client];
      const auto bound = manager_.bind(client, *command, may_take_low_ports(process.pid, process.uid));
      if (!bound) return std::unexpected(bound.error());
      return *bound;
    }
    case Kind::kCmListen:
      return run(std::type_identity<ipc::CmListen>(),
                 [&](const auto& command) { return manager_.listen(client, command); });
    case Kind::kCmConnect:
      return run(std::type_identity<ipc::CmConnect>(),
                 [&](const auto& command) { return manager_.connect(now, client, command); });
    case Kind::kCmAccept:
      return run(std::type_identity<ipc::CmAccept>(),
                 [&](const auto& command) { return manager_.accept(now, client, command); });
    case Kind::kCmEstablish:
      return run(std::type_identity<ipc::CmEstablish>(),
                 [&](const auto& command) { return manager_.establish(client, command); });
    case Kind::kCmReject:
      return run(std::type_identity<ipc::CmReject>(),
                 [&](const auto& command) { return manager_.reject(now, client, command); });
    case Kind::kCmDisconnect:
      return run(std::type_identity<ipc::CmDisconnect>(),
                 [&](const auto& command) { return manager_.disconnect(now, client, command); });
    case Kind::kCmNotify:
      return run(std::type_identity<ipc::CmNotify>(),
                 [&](const auto& command) { return manager_.notify(client, command); });
    default:
      return base::fail(EPROTO, fmt::format("a control message of kind {} has no place on a CM connection",
                                            static_cast<unsigned>(message.kind)));
  }
}

bool CmService::on_mad(const cm::Way& way, std::span<const std::byte> mad) {
  return manager_.on_mad(base::now(), way, mad);
}

void CmService::go_on(base::Instant now) {
  constexpr size_t kBudget = 256;  // of our own MADs, so that clients get their turn
  manager_.on_timer(now);
  for (size_t i = 0; i < kBudget; ++i) {
    for (auto& outgoing : manager_.take_mads()) {
      // Also where we have the port: it is the same manager that would take it in.
      if (is_own_address(address_of(outgoing.way.remote, outgoing.way.interface)))
        to_ourselves_.push_back(outgoing);
      else
        send_(outgoing);
    }
    if (to_ourselves_.empty()) break;
    auto [way, mad] = to_ourselves_.front();
    to_ourselves_.pop_front();
    std::swap(way.local, way.remote);
    manager_.on_mad(now, way, mad);
  }
  for (const auto& notice : manager_.take_notices()) {
    if (channels_.write(notice) || !clients_.contains(notice.client)) continue;
    log_(fmt::format("process {} doesn't read its connection events; its CM connection is closed",
                     clients_[notice.client].pid));
    cut_off_.push_back(notice.client);
  }
}

std::optional<base::Instant> CmService::next_deadline() const {
  if (!to_ourselves_.empty()) return base::Instant{0};
  return manager_.next_deadline();
}

}  // namespace verbena::agent
