#include "wire/acquaintances.hpp"

#include <algorithm>
#include <mutex>

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
  if (!asked && hosts_.size() < kMostHosts) {
    hosts_.push_back({.route = route});
    hosts_.back().route.slot = base::kAgentSlot;
    hosts_.back().route.recognised = false;
    next_.store(0);
  }
  return Word::kAsked;
}

bool Acquaintances::recognise(const net::Address& address) {
  const std::lock_guard lock(lock_);
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
      greetings.push_back({host.route, host.asked});
      host.again = now + base::milliseconds(20) * (1 << host.asked++);
    }
    if (host.asked < kTries) next = std::min(next, host.again);
  }
  next_.store(next.ns);
  return greetings;
}

}  // namespace verbena::wire
