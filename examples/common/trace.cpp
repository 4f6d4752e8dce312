#include "common/trace.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>

namespace examples {
namespace {

std::atomic<bool> tracing_on = false;

/// "Connection reset by peer (ECONNRESET)".
std::string error_text(int number) {
  const char* name = ::strerrorname_np(number);
  const char* description = ::strerrordesc_np(number);
  if (name == nullptr || description == nullptr) return fmt::format("error {}", number);
  return fmt::format("{} ({})", description, name);
}

}  // namespace

Failure::Failure(const std::string& what_failed, int error_number)
    : std::runtime_error(what_failed + ": " + error_text(error_number)) {}

void set_tracing(bool on) { tracing_on = on; }
bool tracing() { return tracing_on.load(std::memory_order_relaxed); }

void say(const std::string& line) {
  const std::string whole = line + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

void check(const char* verb, int returned) {
  if (returned == 0) {
    trace("{}: ok", verb);
    return;
  }
  const int error = error_of(returned);
  trace("{}: {}", verb, error_text(error));
  throw Failure(verb, error);
}

void check_in_teardown(const char* verb, int returned) noexcept {
  if (returned == 0)
    trace("{}: ok", verb);
  else
    say(fmt::format("{}: {}", verb, error_text(error_of(returned))));
}

}  // namespace examples
