// Instant and Duration: time as a type. Protocol code gets an Instant handed in; only `now()` reads a clock.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <ctime>

namespace verbena::base {

using Duration = std::chrono::nanoseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Nanoseconds on CLOCK_MONOTONIC, which all processes of a host share: instants may cross process borders.
struct Instant {
  int64_t ns = 0;

  auto operator<=>(const Instant&) const = default;
  Instant operator+(Duration d) const { return {ns + d.count()}; }
  Duration operator-(Instant earlier) const { return Duration(ns - earlier.ns); }
};

inline Instant now() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return {ts.tv_sec * 1'000'000'000 + ts.tv_nsec};
}

}  // namespace verbena::base
