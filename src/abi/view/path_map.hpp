// Which paths Verbena's view shows, and where they lie: pure text, no file is touched.
#pragma once

#include <climits>
#include <cstddef>
#include <string_view>

namespace verbena::abi::view {

enum class Mapping {
  kPass,     // not ours: use the path as it is
  kMapped,   // use the mapped one
  kTooLong,  // ours, but longer than PATH_MAX once mapped
};

// Cheap and never wrongly false: every path of the view has one of two words in it.
[[nodiscard]] bool may_concern(const char* path) noexcept;

// Maps `path` into the tree at `root` (absolute, without a trailing slash). A relative path is taken against
// `cwd`, which must be physical; for an absolute one `cwd` isn't looked at.
[[nodiscard]] Mapping map_in(std::string_view root, std::string_view cwd, const char* path,
                             char (&out)[PATH_MAX]) noexcept;

// How many leading characters of `path` to hide so that it reads as the program knows it; 0 where it isn't
// ours. The tree's own top isn't hidden: a program that is told "/" might clean up there.
[[nodiscard]] std::size_t hidden_prefix(std::string_view root, std::string_view path) noexcept;

}  // namespace verbena::abi::view
