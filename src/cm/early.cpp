// Requests that come a moment before their listener.
#include <algorithm>

#include "cm/codec.hpp"
#include "cm/manager.hpp"

namespace verbena::cm {
namespace {

constexpr size_t kMostEarly = 256;  // more are turned away at once

}  // namespace

bool Manager::waits_for_listener() {
  if (last_chance_ || settings_.patience.count() == 0 || early_.size() >= kMostEarly) return false;
  unheard_ = true;
  return true;
}

bool Manager::on_mad(base::Instant now, const Way& way, std::span<const std::byte> mad) {
  const auto message = parse(mad);
  if (!message) return false;
  unheard_ = false;
  std::visit([&](const auto& body) { on(now, way, message->transaction, body); }, message->body);
  if (unheard_) early_.push_back({now + settings_.patience, way, {mad.begin(), mad.end()}});
  return true;
}

void Manager::hear_early(base::Instant now) {
  new_listener_ = false;
  for (auto& early : std::exchange(early_, {})) {
    const auto until = early.until;
    last_chance_ = until <= now;
    const size_t before = early_.size();
    on_mad(now, early.way, early.mad);
    if (early_.size() > before) early_.back().until = until;
  }
  last_chance_ = false;
}

std::optional<base::Instant> Manager::next_deadline() const {
  if (early_.empty()) return timers_.next();
  const auto first = std::ranges::min_element(early_, {}, &Early::until)->until;
  const auto due = new_listener_ ? base::Instant{0} : first;
  return std::min(due, timers_.next().value_or(due));
}

}  // namespace verbena::cm
