// What happens to packets in one direction of a faulty link. Decisions come from a seed and the order of
// packets alone, so a run can be repeated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "net/counter.hpp"

namespace verbena::net {

// Probabilities are from 0 to 1, each packet by itself.
struct Faults {
  double loss = 0;
  double duplication = 0;
  double corruption = 0;  // one byte is changed
  double reordering = 0;  // held back until `hold_back` more packets came
  unsigned hold_back = 3;
  double delaying = 0;  // for between `delay` and `delay` + `jitter`
  base::Duration delay{0};
  base::Duration jitter{0};
  bool partition = false;  // nothing passes
  uint64_t lost = 0;       // bit i: the i-th packet after these faults were set is lost

  [[nodiscard]] bool none() const {
    return loss == 0 && duplication == 0 && corruption == 0 && reordering == 0 && delaying == 0 &&
           !partition && lost == 0;
  }
};

struct FaultCounters {
  Counter passed;  // packets handed on, copies and late ones included
  Counter lost;    // by chance, by mask or by partition
  Counter duplicated;
  Counter corrupted;
  Counter reordered;
  Counter delayed;
  Counter overflowed;  // lost because too many were held
};

// `About` is what travels with the bytes.
template <typename About>
class FaultLane {
 public:
  explicit FaultLane(uint64_t seed) : random_(seed) {}

  void set(const Faults& faults) {
    faults_ = faults;
    seen_since_set_ = 0;
  }
  // Whole runs may pass untouched.
  [[nodiscard]] bool quiet() const { return faults_.none() && held_.empty(); }
  [[nodiscard]] const FaultCounters& counters() const { return counters_; }

  // Hands what becomes of the packet to `emit(about, bytes)`, now or in a later call.
  template <typename Emit>
  void pass(base::Instant now, const About& about, std::span<const std::byte> bytes, Emit&& emit) {
    ++seen_;
    const uint64_t place = seen_since_set_++;
    const bool masked = place < 64 && (faults_.lost >> place & 1) != 0;
    if (masked || faults_.partition || chance(faults_.loss)) {
      ++counters_.lost;
    } else {
      pass_one(now, about, bytes, emit);
      if (chance(faults_.duplication)) {
        ++counters_.duplicated;
        pass_one(now, about, bytes, emit);
      }
    }
    release(now, emit);
  }

  // Hands on what was held long enough.
  template <typename Emit>
  void release(base::Instant now, Emit&& emit) {
    // Taken out first: what is emitted may come back in here.
    for (auto due = find_due(now); due != held_.end(); due = find_due(now)) {
      const Held released = std::move(*due);
      held_.erase(due);
      ++counters_.passed;
      emit(released.about, std::span<const std::byte>(released.bytes));
    }
  }

  [[nodiscard]] std::optional<base::Instant> next_deadline() const {
    std::optional<base::Instant> next;
    for (const Held& held : held_)
      if (held.after == kByTime && (!next || held.due < *next)) next = held.due;
    return next;
  }

 private:
  static constexpr size_t kMostHeld = 4'096;
  static constexpr uint64_t kByTime = UINT64_MAX;

  struct Held {
    About about;
    std::vector<std::byte> bytes;
    uint64_t after = kByTime;  // released when so many packets have been seen
    base::Instant due;         // or at this time
  };

  // Not std::bernoulli_distribution and the like, whose draws differ between libraries.
  [[nodiscard]] bool chance(double probability) {
    return probability > 0 && static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }

  template <typename Emit>
  void pass_one(base::Instant now, const About& about, std::span<const std::byte> bytes, Emit&& emit) {
    std::vector<std::byte> changed;
    if (!bytes.empty() && chance(faults_.corruption)) {
      changed.assign(bytes.begin(), bytes.end());
      changed[random_() % changed.size()] ^= static_cast<std::byte>(1 + random_() % 255);
      bytes = changed;
      ++counters_.corrupted;
    }
    if (chance(faults_.reordering)) {
      ++counters_.reordered;
      hold({about, {bytes.begin(), bytes.end()}, seen_ + faults_.hold_back, {}});
    } else if (chance(faults_.delaying)) {
      ++counters_.delayed;
      const int64_t spread = faults_.jitter.count() + 1;
      const auto jitter = base::Duration(static_cast<int64_t>(random_() >> 1) % spread);
      hold({about, {bytes.begin(), bytes.end()}, kByTime, now + faults_.delay + jitter});
    } else {
      ++counters_.passed;
      emit(about, bytes);
    }
  }

  void hold(Held held) {
    if (held_.size() < kMostHeld)
      held_.push_back(std::move(held));
    else
      ++counters_.overflowed;
  }

  // The earliest of those that are due by time, else the first whose count has come.
  auto find_due(base::Instant now) {
    auto best = held_.end();
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (it->after != kByTime ? it->after > seen_ : it->due > now) continue;
      if (best == held_.end() || it->due < best->due) best = it;
    }
    return best;
  }

  Faults faults_;
  std::mt19937_64 random_;
  uint64_t seen_ = 0;
  uint64_t seen_since_set_ = 0;
  std::deque<Held> held_;
  FaultCounters counters_;
};

}  // namespace verbena::net
