// What a connection's data moves through.
#pragma once

#include "common/handles.hpp"
#include "common/options.hpp"

namespace examples {

/// Whether a completion queue has a channel on which it announces completions.
enum class Notify { kNever, kByChannel };

/// A protection domain, one completion queue for both directions, and the queue pair of `id`.
struct Queues {
  Queues(rdma_cm_id* id, const Options& options, Notify notify = Notify::kNever,
         ibv_qp_type type = IBV_QPT_RC);

  [[nodiscard]] ibv_qp* qp() const { return owner->qp; }

  Pd pd;
  CompChannel channel;  ///< only with Notify::kByChannel
  Cq cq;
  CmQp owner;  ///< the id, as the owner of its queue pair
};

}  // namespace examples
