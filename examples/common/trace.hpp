// What each verb returned: printed when --trace is given, and turned into an exception when it failed.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <stdexcept>
#include <string>

namespace examples {

/// Something that ends a program, or one agent of a server. what() is a whole sentence for the user.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& sentence) : std::runtime_error(sentence) {}
  Failure(const std::string& what_failed, int error_number);
};

void set_tracing(bool on);
[[nodiscard]] bool tracing();
/// One line on stderr, whole even if several threads print.
void say(const std::string& line);

/// Prints a line if --trace was given; costs next to nothing otherwise.
template <class... Args>
void trace(fmt::format_string<Args...> form, Args&&... args) {
  if (tracing()) say("trace: " + fmt::format(form, std::forward<Args>(args)...));
}

/// The two families of verbs report errors in two ways, and this takes both: librdmacm's return -1 and set
/// errno, libibverbs' return the error number itself.
[[nodiscard]] inline int error_of(int returned) { return returned < 0 ? errno : returned; }

/// Traces the verb's result; throws if it failed.
void check(const char* verb, int returned);

/// The same for verbs that return a new object, or nullptr and errno.
template <class T>
T* check_new(const char* verb, T* object) {
  if (object == nullptr) throw Failure(verb, errno);
  trace("{}: {}", verb, fmt::ptr(object));
  return object;
}

/// For tear-down, which goes on whatever happens: traces the result and complains if it is an error.
void check_in_teardown(const char* verb, int returned) noexcept;

}  // namespace examples
