// Processes that tests start, talk to, stop and kill.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace verbena::support {

using Wait = std::chrono::milliseconds;

// A child with pipes to its stdin and stdout; killed and reaped when it goes out of scope.
class Process {
 public:
  struct Options {
    std::optional<uid_t> uid;              // run as this user (needs root)
    std::vector<std::string> environment;  // "NAME=value", added to ours
  };
  static Process start(const std::vector<std::string>& command, const Options& options);
  static Process start(const std::vector<std::string>& command) { return start(command, {}); }

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void say(const std::string& line);
  // The next line of its stdout without the newline; nothing at its end or after `wait`.
  std::optional<std::string> hear(Wait wait = Wait(10'000));
  void signal(int number) const;
  // Its wait status; nothing if it still runs after `wait`.
  std::optional<int> wait_for_exit(Wait wait = Wait(10'000));

 private:
  Process(pid_t pid, base::UniqueFd in, base::UniqueFd out);
  pid_t pid_ = -1;
  base::UniqueFd in_;
  base::UniqueFd out_;
  std::string heard_;
};

struct Output {
  int status = 0;  // exit code, or 128 + signal
  std::string text;
};
// Runs a shell command and takes its stdout and stderr together.
Output shell(const std::string& command);

// Polls until `condition` holds; false if it doesn't within `wait`.
bool eventually(const std::function<bool()>& condition, Wait wait = Wait(10'000));

// How many descriptors a process has open; -1 if it is gone.
int descriptor_count(pid_t pid);

// The pid of this user's agent in this network namespace, if one runs.
std::optional<pid_t> agent_pid();

}  // namespace verbena::support
