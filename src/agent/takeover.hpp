// What an earlier agent of this user left behind in the processes that outlived it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::agent {

// Scoped by the network namespace, so that a scan of /proc finds only our own.
[[nodiscard]] std::string registry_memfd_name();

struct Survivor {
  pid_t pid = 0;
  std::string registry_path;  // /proc/PID/fd/N, which opens the same memory anew
};
// Processes of our user that hold a registry of this network namespace.
[[nodiscard]] std::vector<Survivor> find_survivors();

// Whether a program that `verbena run` started, or a child of one, looks at files below this directory.
[[nodiscard]] bool view_in_use(const std::string& directory);

// Opens the registry of the latest agent among the survivors', for writing.
[[nodiscard]] std::optional<base::UniqueFd> open_latest_registry(const std::vector<Survivor>& survivors);

// A copy of the park's descriptor out of a process that can't hand it over itself, being stopped. Where the
// kernel refuses (Yama, seccomp) there is none.
[[nodiscard]] std::optional<base::UniqueFd> fetch_park(const std::vector<Survivor>& survivors);

}  // namespace verbena::agent
