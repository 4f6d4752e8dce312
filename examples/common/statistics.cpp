#include "common/statistics.hpp"

#include <fmt/format.h>

namespace examples {
namespace {

double seconds(const timeval& later, const timeval& earlier) {
  return static_cast<double>(later.tv_sec - earlier.tv_sec) +
         static_cast<double>(later.tv_usec - earlier.tv_usec) * 1e-6;
}

}  // namespace

Statistics::Moment Statistics::now() const {
  Moment moment = {std::chrono::steady_clock::now(), {}};
  ::getrusage(cpu_ == Cpu::kProcess ? RUSAGE_SELF : RUSAGE_THREAD, &moment.usage);
  return moment;
}

void Statistics::start() { begin_ = now(); }
void Statistics::stop() { end_ = now(); }

void Statistics::print(const std::string& name) const {
  const double wall = std::chrono::duration<double>(end_.wall - begin_.wall).count();
  const double user = seconds(end_.usage.ru_utime, begin_.usage.ru_utime);
  const double system = seconds(end_.usage.ru_stime, begin_.usage.ru_stime);
  fmt::print("{}: transferred: {} messages, {} bytes in {:.6f} s\n", name, messages, bytes, wall);
  if (wall > 0)
    fmt::print("{}: rate: {:.0f} messages/s, {:.3f} MB/s\n", name, static_cast<double>(messages) / wall,
               static_cast<double>(bytes) / wall / 1e6);
  fmt::print("{}: cpu: {:.6f} s user, {:.6f} s system, {:.1f} % of one processor{}\n", name, user, system,
             wall > 0 ? 100 * (user + system) / wall : 0.0, cpu_ == Cpu::kThread ? " (this thread)" : "");
  print_polls(name);
  if (!latency.empty()) {
    fmt::print("{}: latency of {}: median {:.2f} us, 99 % {:.2f} us\n", name, latency_of,
               latency.percentile_us(0.5), latency.percentile_us(0.99));
    latency.print();
  }
  std::fflush(stdout);
}

void Statistics::print_polls(const std::string& name) const {
  fmt::print("{}: polls: {} first hits, {} first empty", name, polls.first_hits, polls.first_empty);
  if (polls.cq_events > 0)
    fmt::print(
        ", {} second hits, {} second empty\n{}: events: {} CQ events, {} of them extra, {} calls "
        "acknowledged them",
        polls.second_hits, polls.second_empty, name, polls.cq_events, polls.second_empty, polls.ack_calls);
  fmt::print("\n");
}

}  // namespace examples
