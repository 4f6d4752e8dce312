#include "wire/acquaintances.hpp"

#include <algorithm>
#include <mutex>

#include "base/random.hpp"

namespace verbena::wire {
namespace {

constexpr unsigned kTries = 6;
// Datagrams may come from anybody: beyond so many hosts the rest are taken for strangers.
constexpr size_t kMostHosts = 1024;

}  // namespace

Acquaintances::Word Acquaintances::look_up(const net::Route& route) {
  const std::lock_guard lock(lock_);
  bool asked = false;
  for (const Host& host : hosts_) {
    if (host.route.to != route.to) continue;
    if (host.verbena) return Word::kVerbena;
    asked = asked || host.route.from == route.from;
  }
  if (asked) return Word::kAsked;
  Host host{.route = route, .transaction = base::random_u64()};
  host.route.slot = base::kAgentSlot;
  host.route.recognised = false;
  if (hosts_.size() < kMostHosts) {
    hosts_.push_back(host);
  } else {
    // In place of somebody who never answered; if all did, this one stays a stranger.
    const auto silent = std::ranges::find_if(
        hosts_, [](const Host& known) { return !known.verbena && known.asked == kTries; });
    if (silent == hosts_.end()) return Word::kAsked;
    *silent = host;
  }
  next_.store(0);
  return Word::kAsked;
}

bool Acquaintances::is_verbena(const net::Address& address) {
  const std::lock_guard lock(lock_);
  return std::ranges::any_of(hosts_,
                             [&](const Host& host) { return host.verbena && host.route.to == address; });
}

bool Acquaintances::recognise(const net::Address& address, uint64_t transaction) {
  const std::lock_guard lock(lock_);
  const bool asked = std::ranges::any_of(hosts_, [&](const Host& host) {
    return host.route.to == address && host.asked > 0 && host.transaction == transaction;
  });
  if (!asked) return false;
  bool news = false;
  for (Host& host : hosts_)
    if (host.route.to == address && !host.verbena) news = host.verbena = true;
  return news;
}

std::vector<Acquaintances::Greeting> Acquaintances::due(base::Instant now) {
  const std::lock_guard lock(lock_);
  std::vector<Greeting> greetings;
  base::Instant next{INT64_MAX};
  for (Host& host : hosts_) {
    if (host.verbena || host.asked == kTries) continue;
    if (now >= host.again) {
      greetings.push_back({host.route, host.transaction});
      host.again = now + base::milliseconds(20) * (1 << host.asked++);
    }
    if (host.asked < kTries) next = std::min(next, host.again);
  }
  next_.store(next.ns);
  return greetings;
}

}  // namespace verbena::wire
