// Text in the fixed fields of structs that other processes read.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace verbena::base {

// The text in a field, whether or not its writer left room for a final zero.
template <size_t N>
[[nodiscard]] std::string_view text(const char (&field)[N]) {
  const std::string_view all(field, N);
  return all.substr(0, all.find('\0'));
}

// Cuts what doesn't fit, always leaves a final zero.
template <size_t N>
void set_text(char (&field)[N], std::string_view value) {
  std::memset(field, 0, N);
  std::memcpy(field, value.data(), value.size() < N ? value.size() : N - 1);
}

}  // namespace verbena::base
