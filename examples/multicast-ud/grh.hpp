// The first 40 bytes of what a UD queue pair receives.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace examples {

/// A RECV on a UD queue pair is so much longer than the message: the global routing header comes first.
inline constexpr std::size_t kGrhBytes = 40;

/// Who sent the message. On RoCE v2 over IPv4 the IPv4 header stands in the last 20 bytes, and the first are
/// undefined.
[[nodiscard]] std::string source_of(std::span<const std::byte, kGrhBytes> grh);

}  // namespace examples
