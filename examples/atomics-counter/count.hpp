// How a client counts on a counter in the server's memory.
#pragma once

#include "common/options.hpp"
#include "common/region.hpp"
#include "common/work.hpp"

namespace examples {

/// Each step is one of these.
enum class Manner {
  kAtomic,  ///< FETCH_AND_ADD: the server's device adds, and nobody can come between
  kRacy,    ///< READ, add, WRITE: what another client writes in between is lost
};

/// Adds 1 to the counter options.count times and returns how many steps of others came in between, as far as
/// this client can see it. Throws if a counter that is only counted up goes down.
uint64_t count_up(ibv_qp* qp, Buffer& word, const Region& counter, Manner manner, const Options& options,
                  const NextCompletion& next, Statistics& statistics);

}  // namespace examples
