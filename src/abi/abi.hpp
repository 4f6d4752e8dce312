// What every C entry point needs: how it is exported, and how an error becomes errno.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>
#include <utility>

#include "base/explain.hpp"
#include "base/no_cancel.hpp"
#include "base/result.hpp"

// The fronts jump to vb_<symbol>; the version script hides everything else of the core.
#define VERBENA_ENTRY extern "C" __attribute__((visibility("default")))

// Checks an entry against the prototype in the public header: a wrong one would be the caller's crash.
#define VERBENA_SAME_PROTOTYPE(name)                                            \
  static_assert(std::is_convertible_v<decltype(&vb_##name), decltype(&::name)>, \
                #name " differs from its header")

namespace verbena::abi {

// Tells the sentence, and gives the errno value that the caller returns or stores.
// Nothing is told where the answer is an ordinary one that programs ask for in loops.
[[nodiscard]] inline int explained(const base::Error& error) {
  if (error.code != EAGAIN && error.code != EINTR && error.code != ENODATA) base::explain(error);
  return error.code;
}

// The one call that may wait for long, ibv_get_async_event, waits outside of this.
using base::NoCancel;

// No exception crosses the C ABI. The only one our code expects is an allocation that failed.
template <typename Body>
[[nodiscard]] auto guarded(Body&& body) noexcept -> std::invoke_result_t<Body> {
  const NoCancel no_cancel;
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return base::fail(ENOMEM, "out of memory");
  }
}

// The three conventions of the man pages for a Result: the errno value, -1 with errno, NULL with errno.
template <typename T>
[[nodiscard]] int errno_value(const base::Result<T>& result) {
  return result ? 0 : explained(result.error());
}

template <typename T>
[[nodiscard]] int minus_one(const base::Result<T>& result) {
  if (result) return 0;
  errno = explained(result.error());
  return -1;
}

template <typename T>
[[nodiscard]] T* or_null(const base::Result<T*>& result) {
  if (result) return *result;
  errno = explained(result.error());
  return nullptr;
}

}  // namespace verbena::abi
