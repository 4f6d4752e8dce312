// Processes of the tests of numbers and kills: see worker.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "crash/fleet.hpp"
#include "support/process.hpp"

namespace verbena::cm_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline uint64_t from_environment(const char* name, uint64_t usual) {
  const char* wanted = std::getenv(name);
  return wanted != nullptr ? std::stoull(wanted) : usual;
}

struct Server {
  support::Process process;
  std::string port;
  explicit Server(uint64_t seed = 0)
      : process(support::Process::start({CM_WORKER, "server", std::to_string(seed)})) {
    const auto line = process.hear(support::Wait(30'000));
    EXPECT_TRUE(line && line->starts_with("port ")) << line.value_or("nothing");
    if (line && line->starts_with("port ")) port = line->substr(5);
  }
  // Connections that it has and that have not ended; nothing: it doesn't answer.
  std::optional<unsigned> live() {
    process.say("live");
    for (;;) {
      const auto line = process.hear(support::Wait(30'000));
      if (!line) return std::nullopt;
      if (line->starts_with("live ")) return static_cast<unsigned>(std::stoul(line->substr(5)));
    }
  }
};

struct Client {
  support::Process process;
  explicit Client(uint64_t seed = 0)
      : process(support::Process::start({CM_WORKER, "client", std::to_string(seed)})) {
    EXPECT_EQ(process.hear(support::Wait(30'000)), "ready");
  }
  // Its last word on a command, which says no state.
  std::string hear(support::Wait wait = support::Wait(60'000)) {
    for (;;) {
      const auto line = process.hear(wait);
      if (!line) return "nothing";
      if (line->find(' ') != std::string::npos) return *line;
    }
  }
  std::string tell(const std::string& line) {
    process.say(line);
    return hear();
  }
};

struct Footprint {
  int descriptors = 0;
  // Without shared memory: queue pairs' numbers aren't given again before all were, so the tables that they
  // index are touched page by page until they are whole.
  long resident_kib = 0;
};
inline Footprint footprint(pid_t pid) {
  Footprint found{.descriptors = support::descriptor_count(pid)};
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) found.resident_kib = std::stol(line.substr(8));
  return found;
}

}  // namespace verbena::cm_test
