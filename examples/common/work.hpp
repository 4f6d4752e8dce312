// Work requests and their completions.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>

#include "common/buffer.hpp"
#include "common/statistics.hpp"

namespace examples {

/// What a completion is of; travels as wr_id, since after an error that is nearly all that is valid in a
/// completion.
inline constexpr uint64_t kSendWork = 1;
inline constexpr uint64_t kReceiveWork = 2;

void post_send(ibv_qp* qp, Buffer& buffer, uint64_t wr_id = kSendWork);
void post_receive(ibv_qp* qp, Buffer& buffer, uint64_t wr_id = kReceiveWork);
/// Posts any request that was prepared by hand.
void post(ibv_qp* qp, ibv_send_wr& request, const char* what);

/// Waits for the next completion. How it waits is what the programs differ in.
using NextCompletion = std::function<ibv_wc()>;

/// Throws if the work failed, with the usual reason for that status.
void check_completion(const ibv_wc& completion);
/// Throws if the message has another length than it should.
void check_length(const ibv_wc& completion, uint64_t expected);

/// One attempt to take one completion; false if there is none.
[[nodiscard]] bool poll_once(ibv_cq* cq, ibv_wc& completion);
/// Polls until there is one, at the cost of a whole processor: the simplest way to wait, and the fastest.
[[nodiscard]] ibv_wc busy_poll(ibv_cq* cq, PollCounts& counts);

}  // namespace examples
