#include "ipc/process_id.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace verbena::ipc {
namespace {

uint64_t inode_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
}

}  // namespace

uint64_t start_ticks_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  // The command name may hold anything, newlines included: count fields from the last ')'.
  const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  char state = 0;
  fields >> state;
  if (state == 'Z' || state == 'X') return 0;  // dead, only not yet waited for
  std::string skipped;
  for (int i = 4; i < 22; ++i) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

base::UniqueFd open_pidfd(pid_t pid) {
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

pid_t pid_of_pidfd(int pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("Pid:")) return static_cast<pid_t>(std::stol(line.substr(4)));
  return -1;
}

base::UniqueFd copy_descriptor(int pidfd, int number) {
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, number, 0)));
}

bool maps_file(pid_t pid, const std::string& name) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

PidHome home_of(int pidfd) {
  std::vector<pid_t> numbers;  // in our namespace, in the next one down, ..., in its own
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream fields(line.substr(6));
    for (pid_t number = 0; fields >> number;) numbers.push_back(number);
  }
  if (numbers.empty() || numbers.front() <= 0) return {};  // outside of what we see, or dead
  const uint64_t inode = inode_of("/proc/" + std::to_string(numbers.front()) + "/ns/pid");
  if (inode != 0) return {inode, numbers.back()};
  // Of a process that doesn't let itself be looked at we still know whether it is our neighbour.
  return numbers.size() == 1 ? PidHome{namespace_inode("pid"), numbers.front()} : PidHome{};
}

uint64_t namespace_inode(const char* kind) { return inode_of(std::string("/proc/self/ns/") + kind); }

}  // namespace verbena::ipc
