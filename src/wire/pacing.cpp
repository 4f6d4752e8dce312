#include "wire/pacing.hpp"

#include <algorithm>
#include <utility>

namespace verbena::wire {
namespace {

// A stock machine's socket takes 212,992 bytes, as the kernel counts them: up to twice what a packet holds.
constexpr size_t kBetweenGreetings = 24 << 10;
constexpr uint32_t kMostUnanswered = 4;
constexpr size_t kLeastCost = 768;  // of the shortest packet
constexpr base::Duration kPatience = base::milliseconds(5);
constexpr size_t kMostWays = 4096;  // more are not paced

}  // namespace

Pacing::Way* Pacing::find(const net::Route& route) {
  if (!route.recognised) return nullptr;
  for (Way& way : ways_)
    if (way.slot == route.slot && way.to == route.to) return &way;
  if (ways_.size() == kMostWays) return nullptr;
  return &ways_.emplace_back(Way{.to = route.to, .slot = route.slot});
}

bool Pacing::open(const net::Route& route, base::Instant now) {
  Way* way = find(route);
  if (way == nullptr || way->greeted - way->answered < kMostUnanswered) return true;
  if (now < way->patience) return false;
  way->answered = way->greeted;
  return true;
}

base::Instant Pacing::opens_at(const net::Route& route) {
  const Way* way = find(route);
  return way != nullptr ? way->patience : base::Instant{};
}

std::optional<uint64_t> Pacing::sent(const net::Route& route, size_t bytes, base::Instant now) {
  Way* way = find(route);
  if (way == nullptr) return {};
  way->since_greeting += std::max(bytes, kLeastCost);
  if (way->since_greeting < kBetweenGreetings) return {};
  way->since_greeting = 0;
  way->patience = now + kPatience;
  const auto index = static_cast<uint64_t>(way - ways_.data());
  return index << 32 | way->greeted++;
}

void Pacing::wait(const net::Route& route, uint16_t connection) {
  if (Way* way = find(route);
      way != nullptr && std::ranges::find(way->waiting, connection) == way->waiting.end())
    way->waiting.push_back(connection);
}

std::vector<uint16_t> Pacing::answered(uint64_t number) {
  const uint64_t index = number >> 32;
  if (index >= ways_.size()) return {};
  Way& way = ways_[index];
  const uint32_t answered = static_cast<uint32_t>(number) + 1;
  // Late, or of our own making: only what was asked and isn't answered counts.
  if (answered - way.answered > way.greeted - way.answered) return {};
  way.answered = answered;
  return std::exchange(way.waiting, {});
}

}  // namespace verbena::wire
