// ibv_advise_mr: pages of on-demand regions, faulted in before they are used.
#pragma once

#include <infiniband/verbs.h>

#include <span>

#include "arena/process_arena.hpp"
#include "base/result.hpp"

namespace verbena::verbs {

// EOPNOTSUPP, EINVAL, ENOENT, EPERM and EFAULT as the man page has them. Without IBV_ADVISE_MR_FLAG_FLUSH
// pages that aren't there are no error: it is advice.
[[nodiscard]] base::Result<void> advise_regions(const arena::ProcessArena& arena, uint32_t domain,
                                                ibv_advise_mr_advice advice, uint32_t flags,
                                                std::span<const ibv_sge> ranges);

}  // namespace verbena::verbs
