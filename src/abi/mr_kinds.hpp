// Memory regions of every kind are made in the same way.
#pragma once

#include <functional>

#include "abi/objects.hpp"
#include "verbs/memory_regions.hpp"

namespace verbena::abi {

// `add` enters it into the table, for a domain's handle; address and length are for the caller to set.
[[nodiscard]] base::Result<Mr*> make_region(
    ibv_pd* pd, const std::function<base::Result<uint32_t>(verbs::MemoryRegions&, uint32_t)>& add);

}  // namespace verbena::abi
