#include "abi/view/path_map.hpp"

#include <cstring>

namespace verbena::abi::view {
namespace {

constexpr std::string_view kShown[] = {
    "/sys/class/infiniband",    "/sys/class/infiniband_verbs",  "/sys/class/infiniband_mad",
    "/sys/class/infiniband_cm", "/sys/devices/virtual/verbena", "/dev/infiniband",
};

bool names_ours(const char* path) noexcept {
  return std::strstr(path, "infiniband") != nullptr || std::strstr(path, "verbena") != nullptr;
}

bool shown(std::string_view path) noexcept {
  for (const std::string_view top : kShown)
    if (path == top) return true;
  return false;
}

const char* skip_slashes_and_dots(const char* at) noexcept {
  while (*at == '/' || (*at == '.' && (at[1] == '/' || at[1] == '\0'))) ++at;
  return at;
}

bool is_parent(const char* at) noexcept {
  return at[0] == '.' && at[1] == '.' && (at[2] == '/' || at[2] == '\0');
}

// A path made lexically normal, component by component, in a buffer that the caller lends.
class NormalPath {
 public:
  explicit NormalPath(char (&buffer)[PATH_MAX]) : text_(buffer) {}

  [[nodiscard]] bool append(const char* component, std::size_t length) noexcept {
    if (size_ + 1 + length >= PATH_MAX) return false;
    text_[size_] = '/';
    std::memcpy(text_ + size_ + 1, component, length);
    size_ += 1 + length;
    return true;
  }

  void climb() noexcept {
    while (size_ > 0 && text_[--size_] != '/') {
    }
  }

  [[nodiscard]] std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char* text_;
  std::size_t size_ = 0;
};

Mapping compose(std::string_view root, std::string_view top, const char* rest,
                char (&out)[PATH_MAX]) noexcept {
  const std::size_t rest_length = std::strlen(rest);
  const std::size_t slash = *rest != '\0' && *rest != '/' ? 1 : 0;  // a relative path from inside the top
  if (root.size() + top.size() + slash + rest_length >= PATH_MAX) return Mapping::kTooLong;
  std::memmove(out + root.size(), top.data(), top.size());  // top lies in out
  std::memcpy(out, root.data(), root.size());
  char* end = out + root.size() + top.size();
  if (slash != 0) *end++ = '/';
  std::memcpy(end, rest, rest_length + 1);
  return Mapping::kMapped;
}

// Not string_view's own, which unoptimised drags in the C++ runtime by an exception it can't throw.
bool starts_with(std::string_view path, std::string_view start) noexcept {
  return path.size() >= start.size() && std::memcmp(path.data(), start.data(), start.size()) == 0;
}

bool starts_with_component(std::string_view path, std::string_view top) noexcept {
  return starts_with(path, top) && (path.size() == top.size() || path[top.size()] == '/');
}

}  // namespace

bool may_concern(const char* path) noexcept {
  if (path == nullptr) return false;
  if (path[0] == '/') {
    const bool near = std::strncmp(path + 1, "sys", 3) == 0 || std::strncmp(path + 1, "dev", 3) == 0;
    const bool odd = path[1] == '/' || path[1] == '.';
    if (!near && !odd && std::strstr(path, "/../") == nullptr) return false;
  }
  return names_ours(path);
}

Mapping map_in(std::string_view root, std::string_view cwd, const char* path,
               char (&out)[PATH_MAX]) noexcept {
  NormalPath normal(out);
  if (path[0] != '/') {
    if (cwd.empty() || cwd.front() != '/') return Mapping::kPass;
    if (cwd.size() > 1 && !normal.append(cwd.data() + 1, cwd.size() - 1)) return Mapping::kPass;
  }
  for (const char* at = path;;) {
    const char* next = skip_slashes_and_dots(at);
    // Below a top of ours symbolic links begin, where ".." is the kernel's to resolve: the rest stays as it
    // is.
    if (shown(normal.view()) && !is_parent(next)) return compose(root, normal.view(), at, out);
    if (*next == '\0') return Mapping::kPass;
    const std::size_t length = std::strcspn(next, "/");
    if (is_parent(next))
      normal.climb();
    else if (!normal.append(next, length))
      return Mapping::kPass;
    at = next + length;
  }
}

std::size_t hidden_prefix(std::string_view root, std::string_view path) noexcept {
  if (root.empty() || !starts_with(path, root)) return 0;
  std::string_view inner = path;
  inner.remove_prefix(root.size());
  return starts_with_component(inner, "/sys") || starts_with_component(inner, "/dev/infiniband") ? root.size()
                                                                                                 : 0;
}

}  // namespace verbena::abi::view
