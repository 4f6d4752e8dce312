// Busy polling that notices when the peer has gone.
#pragma once

#include "common/cm_thread.hpp"
#include "common/work.hpp"

namespace examples {

/// Polls until there is a completion; throws when `events` says that the connection has ended and there is
/// none.
[[nodiscard]] ibv_wc poll_unless_disconnected(ibv_cq* cq, const CmThread& events, PollCounts& counts);

}  // namespace examples
