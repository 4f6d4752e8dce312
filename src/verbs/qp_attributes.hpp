// A queue pair's attributes and the rules of ibv_modify_qp and ibv_query_qp, as pure functions. They take no
// lock: a caller holds the queue pair's own from check_modify to apply_modify, so that the state can't change
// between.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <span>

#include "arena/device_table.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/timers.hpp"
#include "verbs/qp_transitions.hpp"

namespace verbena::verbs {

// What the checks need to know of one port. Port 1 is the first of a span.
struct PortFacts {
  uint16_t pkey_table_length = 1;
  std::bitset<arena::kMaxGids> gids;  // by index: which hold an address; the size is the table's length
  ibv_mtu active_mtu = IBV_MTU_256;
  bool grh_required = true;  // IBV_QPF_GRH_REQUIRED: without a GRH a path has no address, as on RoCE
};

// Everything ibv_query_qp shows. qp_state is the state; cur_qp_state always equals it. rq_psn and sq_psn are
// as last set: a path that knows the current ones puts those in what it shows.
struct QpAttributes {
  ibv_qp_attr attr{};
  bool alternate_loaded = false;  // and not used yet
};

// A new queue pair's, and one's that was moved to RESET: only the sizes of its queues are known.
[[nodiscard]] QpAttributes initial_attributes(const ibv_qp_cap& cap);

// Checks one ibv_modify_qp call. EINVAL: the sentence names type, state and attribute and says what to
// change; it doesn't name the queue pair, which the caller knows. Goes by fields whose bit is set only.
[[nodiscard]] base::Result<void> check_modify(ibv_qp_type type, const QpAttributes& now,
                                              const ibv_qp_attr& wanted, int mask,
                                              std::span<const PortFacts> ports);

// Applies a call that check_modify let pass. RTS to SQD leaves sq_draining at 1: the send queue's owner
// clears it (and tells of it if en_sqd_async_notify) once the last send in flight is done, at once if there
// is none.
void apply_modify(ibv_qp_type type, QpAttributes& attributes, const ibv_qp_attr& wanted, int mask);

// The connection has migrated: what was its alternate path is its path now.
void take_alternate_path(QpAttributes& attributes);

// A state change the device makes itself: to SQE or ERR after an error.
void enter_state(QpAttributes& attributes, ibv_qp_state state);

// What ibv_query_qp writes for any mask, which is only a hint. Not rate_limit: programs built with old
// headers have a shorter struct, so nobody writes there.
void show_attributes(const QpAttributes& attributes, ibv_qp_attr& out);

using engine::ack_timeout;
using engine::rnr_timer;

}  // namespace verbena::verbs
