// What several calls refuse in the same way.
#pragma once

#include <infiniband/verbs.h>

namespace verbena::abi {

// Objects of both may be used together: it is one context, or one was imported from the other's cmd_fd.
[[nodiscard]] bool same_context(ibv_context* one, ibv_context* other);
// For posts and polls in a child of fork(), with the sentence: EIO.
[[nodiscard]] int refused_as_stale(ibv_context* context) noexcept;

}  // namespace verbena::abi
