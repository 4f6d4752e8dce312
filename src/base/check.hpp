// CHECK: an assertion that stays on in release. For bugs of ours only, never for input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace verbena::base {

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "verbena: bug: CHECK(%s) failed at %s:%d\n", what, file, line);
  std::abort();
}

}  // namespace verbena::base

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::verbena::base::check_failed(#condition, __FILE__, __LINE__))
