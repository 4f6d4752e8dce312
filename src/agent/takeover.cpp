#include "agent/takeover.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "arena/registry.hpp"
#include "ipc/process_id.hpp"
#include "net/park.hpp"

namespace verbena::agent {
namespace {

// Calls `visit(name)` for each entry of a directory until it returns true.
bool any_entry(const std::string& path, const std::function<bool(const std::string&)>& visit) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.' && visit(entry->d_name)) {
      found = true;
      break;
    }
  }
  ::closedir(directory);
  return found;
}

std::string link_target(const std::string& path) {
  char target[256];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

}  // namespace

std::string registry_memfd_name() {
  return "verbena-registry." + std::to_string(ipc::namespace_inode("net"));
}

std::vector<Survivor> find_survivors() {
  const std::string wanted = "/memfd:" + registry_memfd_name() + " ";
  std::vector<Survivor> survivors;
  any_entry("/proc", [&](const std::string& process) {
    const pid_t pid = std::atoi(process.c_str());
    struct stat st {};
    const std::string home = "/proc/" + process;
    if (pid <= 0 || pid == ::getpid() || ::stat(home.c_str(), &st) != 0 || st.st_uid != ::geteuid())
      return false;
    any_entry(home + "/fd", [&](const std::string& fd) {
      const std::string path = home + "/fd/" + fd;
      if (!link_target(path).starts_with(wanted)) return false;
      survivors.push_back({pid, path});
      return true;
    });
    return false;
  });
  return survivors;
}

bool view_in_use(const std::string& directory) {
  const std::string wanted = "VERBENA_VIEW=" + directory + "/";
  return any_entry("/proc", [&](const std::string& process) {
    struct stat st {};
    const std::string home = "/proc/" + process;
    if (std::atoi(process.c_str()) <= 0 || ::stat(home.c_str(), &st) != 0 || st.st_uid != ::geteuid())
      return false;
    std::ifstream file(home + "/environ");
    const std::string environment((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return environment.find(wanted) != std::string::npos;
  });
}

std::optional<base::UniqueFd> open_latest_registry(const std::vector<Survivor>& survivors) {
  std::optional<base::UniqueFd> latest;
  uint32_t generation = 0;
  for (const auto& survivor : survivors) {
    base::UniqueFd fd(::open(survivor.registry_path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) continue;
    const auto registry = arena::Registry::open(fd.get(), arena::Access::kRead);
    if (!registry) continue;  // of another version: its processes can't come back to us
    const uint32_t its = registry->layout().generation.load(std::memory_order_relaxed);
    if (latest && its <= generation) continue;
    generation = its;
    latest = std::move(fd);
  }
  return latest;
}

std::optional<base::UniqueFd> fetch_park(const std::vector<Survivor>& survivors) {
  for (const auto& survivor : survivors) {
    const base::UniqueFd pidfd = ipc::open_pidfd(survivor.pid);
    if (!pidfd) continue;
    std::optional<base::UniqueFd> park;
    any_entry("/proc/" + std::to_string(survivor.pid) + "/fd", [&](const std::string& fd) {
      if (!link_target("/proc/" + std::to_string(survivor.pid) + "/fd/" + fd).starts_with("socket:"))
        return false;
      base::UniqueFd copy = ipc::copy_descriptor(pidfd.get(), std::atoi(fd.c_str()));
      // Looking takes nothing out, so it is safe to try every socket of that process.
      if (!copy || !net::look_into_park(copy.get())) return false;
      park = std::move(copy);
      return true;
    });
    if (park) return park;
  }
  return std::nullopt;
}

}  // namespace verbena::agent
