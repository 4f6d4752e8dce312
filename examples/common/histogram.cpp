#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "common/statistics.hpp"

namespace examples {

void Histogram::add(std::chrono::nanoseconds latency) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(latency.count(), 1));
  const auto doubling = static_cast<unsigned>(std::bit_width(ns)) - 1;
  // The five bits below the highest one tell the step within the doubling.
  const auto step =
      static_cast<unsigned>((doubling >= 5 ? ns >> (doubling - 5) : ns << (5 - doubling)) & (kSteps - 1));
  ++buckets_[doubling * kSteps + step];
  ++total_;
  min_ns_ = std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
}

double Histogram::percentile_us(double share) const {
  const auto wanted = static_cast<uint64_t>(share * static_cast<double>(total_));
  uint64_t seen = 0;
  for (unsigned bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen <= wanted && seen < total_) continue;
    const double lowest = static_cast<double>(uint64_t{1} << bucket / kSteps);
    return lowest * (1 + (bucket % kSteps + 0.5) / kSteps) / 1000;
  }
  return 0;
}

void Histogram::print() const {
  fmt::print("  latency from {:.2f} us to {:.2f} us:\n", static_cast<double>(min_ns_) / 1000,
             static_cast<double>(max_ns_) / 1000);
  std::array<uint64_t, 64> doublings = {};
  for (unsigned bucket = 0; bucket < buckets_.size(); ++bucket)
    doublings[bucket / kSteps] += buckets_[bucket];
  const uint64_t most = *std::ranges::max_element(doublings);
  for (unsigned doubling = 0; doubling < doublings.size(); ++doubling) {
    if (doublings[doubling] == 0) continue;
    const uint64_t length = (doublings[doubling] * 40 + most - 1) / most;
    fmt::print("  {:>12.3f} us and more {:>10}  {:#<{}}\n",
               static_cast<double>(uint64_t{1} << doubling) / 1000, doublings[doubling], "", length);
  }
}

}  // namespace examples
