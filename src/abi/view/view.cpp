#include "abi/view/view.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace verbena::abi::view {
namespace {

constexpr std::size_t kUnknown = SIZE_MAX;

class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_ = errno;
};

// Written once, by whoever comes first. Two threads, or a thread and its signal handler, may come at once:
// both write the same bytes, so nobody has to wait.
class OnceText {
 public:
  [[nodiscard]] bool known() const noexcept { return size_.load(std::memory_order_acquire) != kUnknown; }
  [[nodiscard]] std::string_view get() const noexcept {
    return {text_, size_.load(std::memory_order_acquire)};
  }
  void set(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size(); ++i)
      std::atomic_ref(text_[i]).store(text[i], std::memory_order_relaxed);
    size_.store(text.size(), std::memory_order_release);
  }

 private:
  std::atomic<std::size_t> size_ = kUnknown;
  char text_[PATH_MAX] = {};
};

constinit OnceText root_text;
constinit OnceText resolved_root_text;

std::string_view configured_root() noexcept {
  const char* value = secure_getenv("VERBENA_VIEW");
  if (value == nullptr || value[0] != '/') return {};
  std::string_view text(value);
  while (!text.empty() && text.back() == '/') text.remove_suffix(1);
  return text.size() < PATH_MAX ? text : std::string_view{};
}

// Empty while the tree isn't there.
std::string_view resolved_root() noexcept {
  if (!resolved_root_text.known()) {
    const KeepErrno keep;
    static constinit NextFunction next_realpath{"realpath", nullptr};
    auto* real = reinterpret_cast<char* (*)(const char*, char*)>(next_realpath.find());
    char name[PATH_MAX];
    char resolved[PATH_MAX];
    const std::string_view top = root();
    std::memcpy(name, top.data(), top.size());
    name[top.size()] = '\0';
    if (real == nullptr || real(name, resolved) == nullptr) return {};
    resolved_root_text.set(resolved);
  }
  return resolved_root_text.get();
}

}  // namespace

std::string_view root() noexcept {
  if (!root_text.known()) [[unlikely]]
    root_text.set(configured_root());
  return root_text.get();
}

Mapping translate(int dirfd, const char* path, char (&out)[PATH_MAX]) noexcept {
  if (path[0] == '/') return map_in(root(), {}, path, out);
  // A directory that was opened through us lies in the tree itself.
  if (dirfd != AT_FDCWD) return Mapping::kPass;
  const KeepErrno keep;
  char cwd[PATH_MAX];
  const long size = syscall(SYS_getcwd, cwd, sizeof cwd);
  if (size < 1) return Mapping::kPass;
  return map_in(root(), {cwd, static_cast<std::size_t>(size - 1)}, path, out);
}

std::size_t hidden_prefix(std::string_view path) noexcept {
  if (root().empty()) return 0;
  const std::size_t hidden = hidden_prefix(root(), path);
  return hidden != 0 ? hidden : hidden_prefix(resolved_root(), path);
}

void* NextFunction::find() noexcept {
  void* found = address.load(std::memory_order_relaxed);
  if (found == nullptr) [[unlikely]] {
    const KeepErrno keep;
    found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) dlerror();  // the program's next dlerror() isn't about us
    address.store(found, std::memory_order_relaxed);
  }
  return found;
}

extern "C" {
extern NextFunction first_next __asm__("__start_verbena_view_next") __attribute__((visibility("hidden")));
extern NextFunction end_next __asm__("__stop_verbena_view_next") __attribute__((visibility("hidden")));
}

namespace {

__attribute__((constructor)) void look_up_all() {
  (void)root();
  for (NextFunction* next = &first_next; next != &end_next; ++next) (void)next->find();
}

}  // namespace
}  // namespace verbena::abi::view
