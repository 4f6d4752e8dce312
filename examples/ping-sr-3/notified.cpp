#include "ping-sr-3/notified.hpp"

#include "common/connect.hpp"

namespace examples {

ibv_wc NotifiedCompletions::next() {
  ibv_wc completion;
  while (true) {
    const bool disconnected = events_.disconnected();
    if (find(completion)) {
      ++counts_.first_hits;
      return completion;
    }
    ++counts_.first_empty;
    if (disconnected) throw events_.failure();
    notifications_.take_and_rearm();
    if (find(completion)) {
      ++counts_.second_hits;
      return completion;
    }
    // A completion came between arming and a poll that took it: it was announced, and this is the
    // announcement.
    ++counts_.second_empty;
  }
}

/// What is flushed because the peer has gone isn't a completion to work on but that news.
bool NotifiedCompletions::find(ibv_wc& completion) {
  if (!poll_once(cq_, completion)) return false;
  if (completion.status == IBV_WC_WR_FLUSH_ERR && events_.disconnected()) throw events_.failure();
  return true;
}

void wake_by_flushing(rdma_cm_id* id) { disconnect(id); }

}  // namespace examples
