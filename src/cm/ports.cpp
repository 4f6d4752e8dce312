#include "cm/ports.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

namespace verbena::cm {
namespace {

bool same_address(const ipc::CmAddress& a, const ipc::CmAddress& b) {
  // The interface tells link-local addresses apart; others are one host's whatever way they are reached.
  const bool link_local = a.bytes[0] == 0xfe && (a.bytes[1] & 0xc0) == 0x80;
  return a.family == b.family && std::ranges::equal(a.bytes, b.bytes) &&
         (!link_local || a.interface == 0 || b.interface == 0 || a.interface == b.interface);
}

// Whether there is an address that both take in.
bool overlap(const Ports::Wanted& a, const Ports::Wanted& b) {
  const auto covers = [](const Ports::Wanted& wide, const Ports::Wanted& other) {
    if (!is_wildcard(wide.address)) return false;
    return wide.address.family == other.address.family ||
           (wide.address.family == AF_INET6 && !wide.family_only);
  };
  return covers(a, b) || covers(b, a) || same_address(a.address, b.address);
}

std::unexpected<base::Error> in_use(uint16_t port) {
  return base::fail(EADDRINUSE, fmt::format("port {} is in use; end who has it, or take another", port));
}

}  // namespace

bool is_wildcard(const ipc::CmAddress& address) {
  // IPv4's is ::ffff:0.0.0.0 where it is mapped like other addresses, or all zero.
  const bool mapped = address.family == AF_INET && address.bytes[10] == 0xff && address.bytes[11] == 0xff;
  for (size_t i = 0; i < sizeof address.bytes; ++i)
    if (address.bytes[i] != 0 && !(mapped && (i == 10 || i == 11))) return false;
  return true;
}

bool Ports::free(const Wanted& wanted, uint16_t port) const {
  const auto found = holders_.find({wanted.space, port});
  if (found == holders_.end()) return true;
  return std::ranges::none_of(found->second, [&](const Holder& holder) {
    const bool shared = wanted.reuse && holder.wanted.reuse && !holder.listening;
    return !shared && overlap(wanted, holder.wanted);
  });
}

base::Result<Ports::Taken> Ports::take(const Wanted& wanted, uint64_t random) {
  uint16_t port = wanted.address.port;
  if (port != 0) {
    if (!free(wanted, port)) return in_use(port);
  } else {
    const unsigned count = ephemeral_.last - ephemeral_.first + 1u;
    unsigned tried = 0;
    // A port that nobody has at all, whatever may be shared: the caller didn't mean any of them.
    const auto candidate = [&] { return static_cast<uint16_t>(ephemeral_.first + (random + tried) % count); };
    while (tried < count && holders_.contains({wanted.space, candidate()})) ++tried;
    if (tried == count)
      return base::fail(EADDRINUSE,
                        fmt::format("all ports from {} to {} are in use", ephemeral_.first, ephemeral_.last));
    port = candidate();
  }
  const Place place{wanted.space, port};
  holders_[place].push_back({.taking = ++last_, .wanted = wanted});
  places_[last_] = place;
  return Taken{last_, port};
}

Ports::Holder* Ports::find(Taking taking) {
  const auto place = places_.find(taking);
  if (place == places_.end()) return nullptr;
  auto& holders = holders_[place->second];
  return &*std::ranges::find(holders, taking, &Holder::taking);
}

base::Result<void> Ports::listen(Taking taking) {
  Holder* const own = find(taking);
  if (own == nullptr) return base::fail(EINVAL, "who listens must have taken a port before");
  const Place place = places_[taking];
  const bool blocked = std::ranges::any_of(holders_[place], [&](const Holder& other) {
    return other.taking != taking && other.listening && overlap(own->wanted, other.wanted);
  });
  if (blocked) return in_use(place.second);
  own->listening = true;
  return {};
}

void Ports::release(Taking taking) {
  const auto place = places_.find(taking);
  if (place == places_.end()) return;
  auto holders = holders_.find(place->second);
  std::erase_if(holders->second, [&](const Holder& holder) { return holder.taking == taking; });
  if (holders->second.empty()) holders_.erase(holders);
  places_.erase(place);
}

Taking Ports::listener(ipc::CmPortSpace space, const ipc::CmAddress& destination) const {
  const auto found = holders_.find({space, destination.port});
  if (found == holders_.end()) return 0;
  const Wanted there{.space = space, .address = destination};
  Taking best = 0;
  for (const auto& holder : found->second) {
    if (!holder.listening || !overlap(holder.wanted, there)) continue;
    if (!is_wildcard(holder.wanted.address)) return holder.taking;
    // Of two wildcards the destination's own family's.
    if (best == 0 || holder.wanted.address.family == destination.family) best = holder.taking;
  }
  return best;
}

}  // namespace verbena::cm
