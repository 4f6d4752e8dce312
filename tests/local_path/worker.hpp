// The test's side of rc_worker: start one, ask it, understand its answers.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <string>
#include <utility>
#include <vector>

#include "local_path/rig.hpp"
#include "support/process.hpp"

namespace verbena::local_path {

// How long a test waits for what has no time of its own.
inline constexpr support::Wait kPatience{15'000 * SLOWDOWN};
// For what goes on for a while, and needn't do as much where everything is slow.
inline constexpr int kLonger = SLOWDOWN == 1 ? 1 : 2;

struct Completion {
  uint64_t id = 0;
  int status = -1;  // an ibv_wc_status; -1: none came
  uint32_t bytes = 0;
};

struct Region {
  uint64_t address = 0;
  uint32_t key = 0;
  // As commands name a place of it: "ADDRESS RKEY".
  [[nodiscard]] std::string at(uint64_t offset) const;
};

inline constexpr Rules kPatient{.timeout = 18, .retries = 7};    // 8 s: nothing may end by itself
inline constexpr Rules kImpatient{.timeout = 12, .retries = 2};  // 50 ms

class Worker {
 public:
  // A test failure if it doesn't get ready.
  explicit Worker(const support::Process::Options& options = {},
                  const std::vector<std::string>& command = {RC_WORKER});

  void say(const std::string& line) { process_.say(line); }
  // Its next answer; "" after a test failure if none comes.
  std::string hear(support::Wait wait = kPatience);
  std::string ask(const std::string& line, support::Wait wait = kPatience);
  // The answer must be "done".
  void tell(const std::string& line);

  Region region(const std::string& name, size_t bytes, const std::string& kind = "heap");
  // A queue pair, with a completion queue "c" before it where there is none; its address as text.
  std::string pair(const std::string& name, unsigned depth = 64, const std::string& queue = "c");
  void queue(const std::string& name, int entries, const std::string& kind = "poll");
  [[nodiscard]] std::string connect(const std::string& pair, const std::string& peer, const Rules& rules);

  uint64_t post(const std::string& line);
  std::vector<Completion> poll(size_t count, int64_t milliseconds, const std::string& queue = "c");
  // Posts one request and takes its completion.
  Completion run(const std::string& line, int64_t milliseconds = 10'000);
  uint64_t word(const std::string& memory, size_t offset);
  size_t count(const std::string& memory, size_t offset, size_t length, int value);

  [[nodiscard]] pid_t pid() const { return process_.pid(); }
  [[nodiscard]] support::Process& process() { return process_; }
  void stop();
  void go_on() { process_.signal(SIGCONT); }
  void kill();

 private:
  support::Process process_;
  bool has_queue_ = false;
};

// What this process and those it starts from here on write to stderr.
class Sayings {
 public:
  Sayings() { testing::internal::CaptureStderr(); }
  ~Sayings() { (void)take(); }
  Sayings(const Sayings&) = delete;
  Sayings& operator=(const Sayings&) = delete;
  std::string take() { return std::exchange(taken_, true) ? "" : testing::internal::GetCapturedStderr(); }

 private:
  bool taken_ = false;
};

void pause_ms(int milliseconds);

// What a worker's process has taken.
struct Footprint {
  int descriptors = 0;
  int mappings = 0;
  long resident_kib = 0;
};
[[nodiscard]] Footprint footprint(pid_t pid);
// CPU time of all its threads.
[[nodiscard]] std::chrono::microseconds cpu_time(pid_t pid);

// Two workers, each with a region "m" and a queue pair "q" that is connected to the other's.
struct Couple {
  Worker requester;
  Worker target;
  Region here;   // the requester's
  Region there;  // the target's
  std::string requester_address;
  std::string target_address;

  struct Options {
    size_t bytes = 1 << 20;
    std::string kind = "heap";
    Rules rules = kPatient;
    std::string queues = "poll";
    std::vector<std::string> environment;
  };
  Couple() : Couple(Options{}) {}
  explicit Couple(const Options& options);
  // "NAME q m OFFSET LENGTH ADDRESS RKEY", one-sided, the same place on both sides.
  [[nodiscard]] std::string access(const std::string& name, size_t offset, size_t length) const;
  [[nodiscard]] std::string add(size_t offset, uint64_t value) const;
};
void connect(Worker& a, const std::string& a_pair, const std::string& a_address, Worker& b,
             const std::string& b_pair, const std::string& b_address, const Rules& rules);

}  // namespace verbena::local_path
