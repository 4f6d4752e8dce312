// What went wrong, at which object, and what to change (P9): one sentence per failure, when asked for.
#pragma once

#include <infiniband/verbs.h>

#include "engine/responder_actions.hpp"
#include "verbs/send_path.hpp"

namespace verbena::verbs {

class QueuePair;

void explain_send_failure(QueuePair& queue_pair, const SendRequest& request, ibv_wc_status status,
                          engine::Verdict why);
void explain_receive_failure(QueuePair& queue_pair, const ibv_wc& completion, engine::Verdict why);
// A post that was refused with that errno.
void explain_refused_send(QueuePair& queue_pair, const ibv_send_wr& request, int error);
void explain_refused_receive(QueuePair& queue_pair, const ibv_recv_wr& request, int error);
void explain_responder_failure(QueuePair& queue_pair, engine::Verdict why);

}  // namespace verbena::verbs
