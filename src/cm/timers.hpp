// When which connection is due; each has one timer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/time.hpp"

namespace verbena::cm {

class Timers {
 public:
  void set(uint32_t key, base::Instant due) {
    cancel(key);
    due_of_[key] = due;
    order_.emplace(due, key);
  }
  void cancel(uint32_t key) {
    const auto found = due_of_.find(key);
    if (found == due_of_.end()) return;
    order_.erase({found->second, key});
    due_of_.erase(found);
  }
  [[nodiscard]] std::optional<base::Instant> next() const {
    if (order_.empty()) return {};
    return order_.begin()->first;
  }
  // One that is due, which then is set no more.
  [[nodiscard]] std::optional<uint32_t> take_due(base::Instant now) {
    if (order_.empty() || order_.begin()->first > now) return {};
    const uint32_t key = order_.begin()->second;
    cancel(key);
    return key;
  }

 private:
  std::map<uint32_t, base::Instant> due_of_;
  std::set<std::pair<base::Instant, uint32_t>> order_;
};

}  // namespace verbena::cm
