#include "common/watched_poll.hpp"

namespace examples {

ibv_wc poll_unless_disconnected(ibv_cq* cq, const CmThread& events, PollCounts& counts) {
  ibv_wc completion;
  while (true) {
    // In this order: a peer that ends well sends its last message first and disconnects then, so what there
    // was to receive is in the queue when the flag is seen.
    const bool disconnected = events.disconnected();
    if (poll_once(cq, completion)) break;
    ++counts.first_empty;
    if (disconnected) throw events.failure();
  }
  ++counts.first_hits;
  return completion;
}

}  // namespace examples
