// Virtual time: what happens when. Of two events at the same instant the one scheduled first comes first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.hpp"

namespace verbena::sim {

class EventQueue {
 public:
  using Action = std::function<void()>;

  // Not 0: the engine takes the instant 0 for "none".
  static constexpr base::Instant kStart{1'000'000'000};

  [[nodiscard]] base::Instant now() const { return now_; }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] uint64_t happened() const { return happened_; }

  void at(base::Instant when, Action action) {
    heap_.push_back({std::max(when, now_), ++scheduled_, std::move(action)});
    std::ranges::push_heap(heap_, later);
  }
  void after(base::Duration delay, Action action) { at(now_ + delay, std::move(action)); }

  // The next event. Not when empty().
  void step() {
    std::ranges::pop_heap(heap_, later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.when;
    ++happened_;
    event.action();
  }

 private:
  struct Event {
    base::Instant when;
    uint64_t order = 0;
    Action action;
  };
  static bool later(const Event& a, const Event& b) {
    return a.when != b.when ? b.when < a.when : b.order < a.order;
  }

  std::vector<Event> heap_;
  base::Instant now_ = kStart;
  uint64_t scheduled_ = 0;
  uint64_t happened_ = 0;
};

}  // namespace verbena::sim
