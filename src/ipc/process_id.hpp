// Which process is meant: a pid alone may name another process tomorrow.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::ipc {

// Start time in clock ticks since boot; 0: no such process, or a dead one.
[[nodiscard]] uint64_t start_ticks_of(pid_t pid);
[[nodiscard]] base::UniqueFd open_pidfd(pid_t pid);
// The pid that a pidfd names, in our pid namespace; 0 if it lies outside, -1 if it is dead or not a pidfd.
[[nodiscard]] pid_t pid_of_pidfd(int pidfd);
// A copy of another process's descriptor. Empty: it has none of that number, or the kernel refuses (Yama,
// seccomp).
[[nodiscard]] base::UniqueFd copy_descriptor(int pidfd, int number);
// Whether a process maps a file whose name begins so, such as "/memfd:verbena-tables".
[[nodiscard]] bool maps_file(pid_t pid, const std::string& name);
// In which pid namespace a process lives, and by which number it is known there.
struct PidHome {
  uint64_t inode = 0;  // of the namespace; 0: can't be told, or the process is dead
  pid_t pid = 0;
};
[[nodiscard]] PidHome home_of(int pidfd);
// A number that names a namespace of ours: "net", "pid", "user".
[[nodiscard]] uint64_t namespace_inode(const char* kind);

}  // namespace verbena::ipc
