// Path migration over the network: a connection has a route, and perhaps another one.
#include "wire/pipelined_path.hpp"

namespace verbena::wire {

void ConnectedPath::load_alternate(const verbs::Alternate& alternate) {
  const auto& vector = alternate.vector;
  net::Route other{.from = {vector.own_gid},
                   .to = {vector.peer_gid},
                   .interface = vector.interface,
                   .traffic_class = vector.traffic_class,
                   .hop_limit = vector.hop_limit != 0 ? vector.hop_limit : uint8_t{64},
                   .slot = peering_.target.slot()};
  port_->while_nothing_comes([&] {
    migration_.disarm();
    routes_[1 - current_.load()] = other;
    alternate_timeout_ = alternate.timeout.count();
    alternate_loaded_ = true;
  });
}

bool ConnectedPath::change_path() {
  return migration_.migrate([&] {
    current_ = 1 - current_;
    alternate_loaded_ = false;
    changed_at_ = base::now();
  });
}

bool ConnectedPath::changed_within(base::Instant now, base::Duration span) {
  const base::Instant changed = changed_at_.exchange({});
  return changed != base::Instant{} && now - changed < span;
}

// IBA 17.2.8: who is armed, or wants to be, says so by MigReq 0. Who has changed its path says 1 on the
// other.
bool ConnectedPath::admit(const roce::Packet& packet, const net::Received& received) {
  const net::Route* other = alternate();
  if (other == nullptr) return true;
  if (received.from == other->to && received.to == other->from &&
      (received.from != route()->to || received.to != route()->from))
    return packet.bth.migrated && change_path();
  if (!packet.bth.migrated) migration_.arm();
  return true;
}

}  // namespace verbena::wire
