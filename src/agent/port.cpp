// The RoCEv2 port: made anew, inherited through the park, or leased in part from the user who has it.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.hpp"
#include "base/check.hpp"
#include "net/park.hpp"

namespace verbena::agent {
namespace {

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

void Agent::take_port() {
  auto group = net::create_group();
  if (group) {
    auto park = net::create_park(registry_fd_.get(), *group);
    if (park) return own_group(std::move(*group), std::move(*park));
    return go_without_port(park.error().sentence);
  }
  if (group.error().code != EADDRINUSE)
    return go_without_port(fmt::format(
        "no RoCEv2 port: {}; programs on this host reach each other all the same", group.error().sentence));
  const int64_t owner = net::port_owner_uid();
  if (owner >= 0 && owner != static_cast<int64_t>(::geteuid())) {
    auto leased = lease_from_owner(static_cast<uid_t>(owner));
    if (leased) return;
    port_retry_ = base::now() + base::seconds(1);
    return go_without_port(
        fmt::format("UDP port {} belongs to uid {}, which gives no slots away ({}); programs of yours reach "
                    "each other all the same",
                    net::kRocePort, owner, leased.error().sentence));
  }
  go_without_port(
      fmt::format("UDP port {} is taken, by the kernel's Soft-RoCE (rmmod rdma_rxe) or by a stopped "
                  "process of yours; programs on this host reach each other all the same",
                  net::kRocePort));
}

void Agent::own_group(net::SteeredGroup group, base::UniqueFd park) {
  group_ = std::move(group);
  park_ = std::move(park);
  lease_.reset();
  advice_.clear();
  slots_->limit_to({});
  registry_.layout().leased.store(0);
  registry_.layout().has_group.store(1);
  show_park_to_keeper();
  open_qp1();
  auto listener = ipc::listen_at(ipc::port_owner_name());
  if (!listener) return log(listener.error().sentence);
  port_listener_ = std::move(*listener);
  if (auto watched = loop_.watch(port_listener_.get(), [this] { accept(port_listener_.get(), true); });
      !watched)
    log(watched.error().sentence);
  hand_out_sockets();
}

void Agent::open_qp1() {
  auto made = Qp1::create(
      group_[0].get(), [this](arena::Counter counter) { registry_.count(counter); },
      [this](const cm::Way& way, std::span<const std::byte> mad) { return cm_->on_mad(way, mad); });
  if (!made) return log(made.error().sentence);
  qp1_ = std::move(*made);
  if (auto watched = loop_.watch(group_[0].get(), [this] { qp1_->read(); }); !watched)
    log(watched.error().sentence);
}

bool Agent::adopt_park(base::UniqueFd park) {
  auto parked = net::look_into_park(park.get());
  if (!parked) return false;
  if (!same_file((*parked)[0].get(), registry_fd_.get())) {
    // Whoever brings another registry lived with another agent than the one whose registry we found, or we
    // found none because its processes are in another pid namespace. Before we are ready theirs can still be
    // ours.
    auto registry = arena::Registry::open((*parked)[0].get(), arena::Access::kReadWrite);
    if (ready_ || !registry) return false;
    if (!use_registry(std::move((*parked)[0]), std::move(*registry))) return false;
  }
  if (parked->size() == 1) {
    take_port();  // their agent had no group; perhaps the port is free by now
    return true;
  }
  net::SteeredGroup group(std::make_move_iterator(parked->begin() + 1),
                          std::make_move_iterator(parked->end()));
  own_group(std::move(group), std::move(park));
  return true;
}

base::Result<void> Agent::lease_from_owner(uid_t owner_uid) {
  auto socket = ipc::connect_to(ipc::port_owner_name());
  if (!socket) return std::unexpected(socket.error());
  const auto peer = ipc::peer_of(socket->get());
  if (!peer) return std::unexpected(peer.error());
  // Anybody can take an abstract name; only the uid that the kernel shows on the port speaks for the port.
  if (peer->uid != owner_uid)
    return base::fail(EACCES, fmt::format("uid {} poses as the port's owner", peer->uid));
  // After a change of agents on either side the same range again: held slots keep their numbers.
  ipc::Lease wanted{};
  const SlotRange held = slots_->range();
  if (held != SlotRange{}) wanted = {.first = held.first, .count = held.count};
  if (auto sent = ipc::send(socket->get(), wanted); !sent) return sent;
  // The owner is an agent as well, which answers at once; a hostile one costs us a second, once.
  auto reply = ipc::receive_until(socket->get(), base::now() + base::seconds(1));
  if (!reply) return std::unexpected(reply.error());
  const auto leased = ipc::expect<ipc::Leased>(*reply);
  if (!leased) return std::unexpected(leased.error());
  if (leased->first < base::kFirstProcessSlot || leased->count == 0 ||
      leased->first > base::kLastProcessSlot || leased->count > base::kLastProcessSlot - leased->first + 1)
    return base::fail(EPROTO, "the port's owner offers slots that don't exist");

  go_without_port(
      fmt::format("UDP port {} belongs to uid {}: your programs reach each other on this host, with slots {} "
                  "to {}, but not the "
                  "network; a system agent (`verbena agent --system`, run by root) would serve both users",
                  net::kRocePort, owner_uid, leased->first, leased->first + leased->count - 1));
  slots_->limit_to({leased->first, leased->count});
  registry_.layout().leased.store(leased->first << 16 | leased->count);
  lease_ = std::move(*socket);
  return loop_.watch(lease_.get(), [this] { on_lease_lost(); });
}

void Agent::go_without_port(std::string advice) {
  advice_ = std::move(advice);
  log(advice_);
  group_.clear();
  registry_.layout().has_group.store(0);
  auto park = net::create_park(registry_fd_.get(), {});
  if (park) park_ = std::move(*park);
  show_park_to_keeper();
}

void Agent::on_lease_lost() {
  // Nothing is ever sent on this connection, so readable means gone. The owner's next agent may need a moment
  // to come up, or the port is free now and becomes ours; until either is so, the slots we had stay ours.
  if (lease_) loop_.unwatch(lease_.get());
  lease_.reset();
  port_retry_.reset();
  take_port();
  if (!lease_ && group_.empty()) port_retry_ = base::now() + base::seconds(1);
}

void Agent::show_park_to_keeper() {
  if (!options_.keeper || !park_) return;
  const int park = park_.get();
  if (auto sent = ipc::send(options_.keeper.get(), ipc::SlotSocket{}, std::span(&park, 1)); !sent)
    log(sent.error().sentence);
}

void Agent::hand_out_sockets() {
  if (!ready_) return;
  for (auto& [key, session] : sessions_) {
    if (!session.slot) continue;
    const int socket = group_[session.slot->value].get();
    answer(session, ipc::SlotSocket{}, std::span(&socket, 1));
  }
}

}  // namespace verbena::agent
