// What a program did and what that cost: time, processor, latency, polls.
#pragma once

#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace examples {

/// How completions were found.
struct PollCounts {
  uint64_t first_hits = 0;    ///< polls that found a completion without waiting
  uint64_t first_empty = 0;   ///< polls that found none
  uint64_t second_hits = 0;   ///< found by the poll that follows a CQ event
  uint64_t second_empty = 0;  ///< CQ events whose completion an earlier poll had taken: the extra events
  uint64_t cq_events = 0;     ///< CQ events taken from the completion channel
  uint64_t ack_calls = 0;     ///< calls that acknowledged them, many at a time
};

/// Latencies, remembered to about 3 %: 32 buckets for each doubling.
class Histogram {
 public:
  void add(std::chrono::nanoseconds latency);
  [[nodiscard]] bool empty() const { return total_ == 0; }
  /// The latency that `share` of all stay within, in microseconds.
  [[nodiscard]] double percentile_us(double share) const;
  /// A line a doubling, with a bar.
  void print() const;

 private:
  static constexpr unsigned kSteps = 32;
  std::array<uint64_t, 64 * kSteps> buckets_ = {};
  uint64_t total_ = 0;
  uint64_t min_ns_ = UINT64_MAX;
  uint64_t max_ns_ = 0;
};

/// Which processor time counts: a client's whole process, or the one thread of a server that serves a client.
enum class Cpu { kProcess, kThread };

class Statistics {
 public:
  explicit Statistics(Cpu cpu) : cpu_(cpu) {}

  /// The part that is measured begins, or ends.
  void start();
  void stop();

  PollCounts polls;
  Histogram latency;                   ///< empty if the program measures none
  std::string latency_of = "one way";  ///< what the latencies are of
  uint64_t messages = 0;               ///< that were transferred
  uint64_t bytes = 0;                  ///< of payload, all messages and directions together

  /// The account: one line a theme, "name: theme: figures".
  void print(const std::string& name) const;

 private:
  struct Moment {
    std::chrono::steady_clock::time_point wall;
    rusage usage;
  };
  [[nodiscard]] Moment now() const;
  void print_polls(const std::string& name) const;

  Cpu cpu_;
  Moment begin_ = {};
  Moment end_ = {};
};

}  // namespace examples
