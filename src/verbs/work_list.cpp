#include "verbs/work_list.hpp"

#include <algorithm>

namespace verbena::verbs {

void WorkList::add(const std::shared_ptr<Pending>& pending, base::Instant due) {
  bool calls = false;
  {
    const std::lock_guard lock(mutex_);
    calls = due < promised_;
    promised_ = std::min(promised_, due);
    const auto known =
        std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.pending == pending; });
    if (known != entries_.end()) {
      known->due = std::min(known->due, due);
    } else {
      entries_.push_back({pending, due});
      calls |= count_.fetch_add(1) == 0;
    }
  }
  if (calls && on_first != nullptr) on_first(context);
}

bool WorkList::step(base::Instant now) {
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return false;
    entry = std::move(entries_.front());
    entries_.pop_front();
  }
  // Without the lock: it copies.
  entry.due = entry.pending->go_on(now);
  bool calls = false;
  bool left = true;
  {
    const std::lock_guard lock(mutex_);
    // The helper may have asked meanwhile when to come again, and this one wasn't in the list.
    calls = entry.due < promised_;
    promised_ = std::min(promised_, entry.due);
    // It may have been added again meanwhile, by a post that found it waiting.
    const auto again =
        std::ranges::find_if(entries_, [&](const Entry& e) { return e.pending == entry.pending; });
    if (again != entries_.end()) again->due = std::min(again->due, entry.due);
    if (entry.due != Pending::kNever && again == entries_.end())
      entries_.push_back(std::move(entry));
    else
      left = count_.fetch_sub(1) > 1;
  }
  if (calls && on_first != nullptr) on_first(context);
  return left;
}

base::Instant WorkList::run_all(base::Instant now) {
  size_t rounds = 0;
  {
    const std::lock_guard lock(mutex_);
    rounds = entries_.size();
  }
  for (; rounds > 0; --rounds)
    if (!step(now)) break;
  const std::lock_guard lock(mutex_);
  return promised_ = first_due();
}

base::Instant WorkList::next_due() {
  const std::lock_guard lock(mutex_);
  return first_due();
}

base::Instant WorkList::first_due() const {
  base::Instant first = Pending::kNever;
  for (const auto& entry : entries_) first = std::min(first, entry.due);
  return first;
}

}  // namespace verbena::verbs
