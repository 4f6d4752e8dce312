// The park: a socketpair in which descriptors lie in flight, so that they live as long as anybody holds its
// end, whoever made them. Each client of the agent holds it; a new agent looks into it without taking
// anything out.
#pragma once

#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::net {

// The first descriptor is the registry, the others are the steered group in slot order (or none).
[[nodiscard]] base::Result<base::UniqueFd> create_park(int registry, std::span<const base::UniqueFd> group);
// New descriptors of the same files, in the same order, each time it is asked. EPROTO: not a park.
[[nodiscard]] base::Result<std::vector<base::UniqueFd>> look_into_park(int park);

}  // namespace verbena::net
