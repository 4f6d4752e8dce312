// The sysfs helpers that old programs and vendor drivers import.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "abi/abi.hpp"
#include "base/unique_fd.hpp"

namespace verbena::abi {
namespace {

std::string find_sysfs() {
  const char* wanted = ::secure_getenv("SYSFS_PATH");
  std::string path = wanted && *wanted ? wanted : "/sys";
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

base::Result<int> read_attribute(const std::string& path, char* buffer, size_t size) {
  const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return base::fail_errno(path);
  const ssize_t length = ::read(file.get(), buffer, size);
  if (length < 0) return base::fail_errno(path);
  int used = static_cast<int>(length);
  if (used > 0 && buffer[used - 1] == '\n') --used;
  // Terminated only where there is room, as callers of this old function expect.
  if (static_cast<size_t>(used) < size) buffer[used] = '\0';
  return used;
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

// Neither is in a public header any more.
VERBENA_ENTRY const char* vb_ibv_get_sysfs_path() noexcept {
  static const std::string* const path = new std::string(abi::find_sysfs());
  return path->c_str();
}

VERBENA_ENTRY int vb_ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) noexcept {
  const auto length =
      abi::guarded([&] { return abi::read_attribute(fmt::format("{}/{}", dir, file), buf, size); });
  return length ? *length : abi::minus_one(length);
}
