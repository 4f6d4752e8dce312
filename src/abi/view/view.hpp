// The preload shim that shows a program Verbena's part of /sys and /dev, out of the tree at $VERBENA_VIEW.
// Runs on any thread of any program, in signal handlers and before constructors: no allocation, no lock, no
// C++ runtime. Not covered: system calls made without libc, statically linked programs, fts(3), and paths
// relative to a directory fd on the host's own /sys.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <string_view>
#include <type_traits>

#include "abi/view/path_map.hpp"

namespace verbena::abi::view {

// The tree's top; empty when there is no view.
[[nodiscard]] std::string_view root() noexcept;
// Where `path` lies in truth. kMapped: in `out`. errno is left alone.
[[nodiscard]] Mapping translate(int dirfd, const char* path, char (&out)[PATH_MAX]) noexcept;
// As hidden_prefix of path_map.hpp, for the tree under both names: as configured, and with links resolved.
[[nodiscard]] std::size_t hidden_prefix(std::string_view path) noexcept;

// A function of libc (or of the next preload) by its name. All are looked up when the shim is loaded, so that
// a signal handler needn't; earlier calls look up for themselves.
struct NextFunction {
  const char* name;
  std::atomic<void*> address;
  [[nodiscard]] void* find() noexcept;
};

template <typename R>
[[nodiscard]] R refusal(int code) noexcept {
  errno = code;
  if constexpr (std::is_pointer_v<R>)
    return nullptr;
  else
    return R{-1};
}

template <typename R, typename... A, typename... Given>
R call_next(R (*)(A...), NextFunction& next, Given... given) {
  auto* function = reinterpret_cast<R (*)(A...)>(next.find());
  return function == nullptr ? refusal<R>(ENOSYS) : function(given...);
}
template <typename R, typename... A, typename... Given>
R call_next(R (*)(A..., ...), NextFunction& next, Given... given) {
  auto* function = reinterpret_cast<R (*)(A..., ...)>(next.find());
  return function == nullptr ? refusal<R>(ENOSYS) : function(given...);
}

// Apart from the fast path, which so needs no page of stack.
template <typename Call>
[[gnu::noinline]] auto call_translated(int dirfd, const char* path, Call& call) {
  char mapped[PATH_MAX];
  switch (translate(dirfd, path, mapped)) {
    case Mapping::kMapped:
      return call(static_cast<const char*>(mapped));
    case Mapping::kTooLong:
      return refusal<decltype(call(path))>(ENAMETOOLONG);
    case Mapping::kPass:
      break;
  }
  return call(path);
}

// Calls `call` with the path as the kernel shall see it.
template <typename Call>
auto through_at(int dirfd, const char* path, Call call) {
  if (root().empty() || !may_concern(path)) [[likely]]
    return call(path);
  return call_translated(dirfd, path, call);
}
template <typename Call>
auto through(const char* path, Call call) {
  return through_at(AT_FDCWD, path, call);
}

}  // namespace verbena::abi::view

// Declares an interposed function under a name of our own: libc's headers put attributes on theirs (nonnull,
// which would drop our null checks) and redirect some to 64-bit twins.
#define VIEW_EXPORT(R, NAME, PARAMETERS)                                                 \
  extern "C" __attribute__((visibility("default"))) R view_##NAME PARAMETERS asm(#NAME); \
  R view_##NAME PARAMETERS

// Inside one: `next(...)` calls what it stands before.
#define VIEW_NEXT(NAME)                                                                                  \
  __attribute__((section("verbena_view_next"),                                                           \
                 used)) static constinit ::verbena::abi::view::NextFunction slot_##NAME{#NAME, nullptr}; \
  const auto next = [](auto... given) {                                                                  \
    return ::verbena::abi::view::call_next(&view_##NAME, slot_##NAME, given...);                         \
  }
