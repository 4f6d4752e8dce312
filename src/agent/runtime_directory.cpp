#include "agent/runtime_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <vector>

#include "agent/takeover.hpp"
#include "ipc/process_id.hpp"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

// A program that `verbena run` started may still read a killed agent's tree: it gets some time.
constexpr time_t kStaleSeconds = 600;

// A directory of this name that is really ours: in /tmp anybody could have made it first.
base::UniqueFd own_directory(const std::string& path, mode_t mode) {
  ::mkdir(path.c_str(), mode);
  base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || st.st_uid != ::geteuid() || (st.st_mode & 0022) != 0) return {};
  if (::fchmod(fd.get(), mode) != 0 || ::access(path.c_str(), W_OK | X_OK) != 0) return {};
  return fd;
}

bool stale(const fs::path& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  return fd && ::fstat(fd.get(), &st) == 0 && st.st_uid == ::geteuid() &&
         st.st_mtime + kStaleSeconds < std::time(nullptr) && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

void sweep(const std::string& place, const std::string& prefix, const std::string& ours) {
  std::error_code ignored;
  std::vector<fs::path> left_behind;
  for (const auto& entry : fs::directory_iterator(place, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix) && name != ours && stale(entry.path()) && !view_in_use(entry.path()))
      left_behind.push_back(entry.path());
  }
  for (const auto& path : left_behind) fs::remove_all(path, ignored);
}

}  // namespace

base::Result<RuntimeDirectory> make_runtime_directory(bool for_everybody) {
  const std::string whose = for_everybody ? "system" : std::to_string(::geteuid());
  const std::string prefix = fmt::format("verbena-{}-", whose);
  const std::string name = prefix + std::to_string(ipc::namespace_inode("net"));
  const mode_t mode = for_everybody ? 0755 : 0700;
  std::vector<std::string> places;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR");
      runtime != nullptr && *runtime == '/' && !for_everybody)
    places.emplace_back(runtime);
  for (const char* place : {"/run", "/dev/shm", "/tmp"}) places.emplace_back(place);
  for (const auto& place : places) {
    const std::string path = place + "/" + name;
    auto opened = own_directory(path, mode);
    if (!opened) continue;
    ::flock(opened.get(), LOCK_EX | LOCK_NB);
    sweep(place, prefix, name);
    return RuntimeDirectory{path, std::move(opened)};
  }
  return base::fail(EACCES,
                    "no directory for the device files can be made in the runtime directory, /run, /dev/shm "
                    "or /tmp");
}

}  // namespace verbena::agent
