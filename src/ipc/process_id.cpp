#include "ipc/process_id.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace verbena::ipc {

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

uint64_t namespace_inode(const char* kind) {
  struct stat st {};
  const std::string path = std::string("/proc/self/ns/") + kind;
  return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
}

}  // namespace verbena::ipc
