// How an operation that can fail says so: an errno for the C ABI and one sentence for the person (P9).
#pragma once

#include <cerrno>
#include <cstring>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::base {

struct Error {
  int code = 0;          // an errno value, as the man pages name it
  std::string sentence;  // what happened, at which object, and what to change
};

template <typename T>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> fail(int code, std::string sentence) {
  return std::unexpected(Error{code, std::move(sentence)});
}

// For a failed system call: call it right after, while errno still tells the cause.
[[nodiscard]] inline std::unexpected<Error> fail_errno(std::string_view what) {
  const int code = errno;
  return fail(code, std::string(what) + ": " + std::strerror(code));
}

}  // namespace verbena::base
