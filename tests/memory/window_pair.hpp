// A connected pair whose far end has memory that windows may be bound to.
#pragma once

#include "pair_test.hpp"

namespace verbena::rc {

inline constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
inline constexpr uint64_t kRegion = 65536;

class WindowPair : public PairTest {
 protected:
  void prepare(Backing backing = Backing::kPrivate) {
    open_connected();
    local_ = a().add_buffer(kRegion);
    memory_ = b().add_buffer({.length = kRegion, .access = kBindable, .backing = backing});
    ASSERT_EQ(0u, memory_.error);
  }
  [[nodiscard]] BindOrder order(const Window& window, uint64_t offset, uint64_t length,
                                unsigned access = kAllRemote) const {
    return {.window = window.id,
            .buffer = memory_.id,
            .address = memory_.address + offset,
            .length = length,
            .access = access};
  }
  // Bound through b's queue pair, and completed.
  Window bound(ibv_mw_type type, uint64_t offset, uint64_t length, unsigned access = kAllRemote) {
    const Window window = b().add_window(type);
    EXPECT_EQ(0, window.error);
    return bind(order(window, offset, length, access));
  }
  Window bind(const BindOrder& wanted) {
    const Window made = b().bind(wanted);
    EXPECT_EQ(0, made.error);
    const ibv_wc completion = b().next(Queue::kSend);
    EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
    EXPECT_EQ(IBV_WC_BIND_MW, completion.opcode);
    EXPECT_EQ(wanted.wr_id, completion.wr_id);
    return made;
  }
  // A request of a's by a key, at an address.
  [[nodiscard]] SendOrder with_key(ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
                                   uint64_t length) const {
    return {.opcode = opcode, .remote_address = address, .rkey = rkey, .pieces = {local_.piece(0, length)}};
  }
  [[nodiscard]] testing::AssertionResult works(const SendOrder& wanted) {
    if (const int error = a().post_send(wanted); error != 0)
      return testing::AssertionFailure() << "posting failed with " << error;
    return next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS);
  }
  // It fails so, and costs both queue pairs.
  [[nodiscard]] testing::AssertionResult is_refused(const SendOrder& wanted,
                                                    ibv_wc_status status = IBV_WC_REM_ACCESS_ERR,
                                                    ibv_event_type event = IBV_EVENT_QP_ACCESS_ERR) {
    if (const int error = a().post_send(wanted); error != 0)
      return testing::AssertionFailure() << "posting failed with " << error;
    if (auto came = next_is(a(), Queue::kSend, 1, status); !came) return came;
    return event_is(b(), event);
  }
  // Both to RESET and back, with the same keys.
  // With other numbers: what was sent twice before, and lies in a socket yet, mustn't be taken for a new
  // request.
  void reconnect() {
    for (Side* side : {&a(), &b()}) EXPECT_EQ(0, side->to_state(IBV_QPS_RESET));
    for (uint32_t* psn : {&links_.a.sq_psn, &links_.a.rq_psn, &links_.b.sq_psn, &links_.b.rq_psn})
      *psn = (*psn + 0x10000) & 0xffffff;
    connect();
  }

  Buffer local_;   // a's
  Buffer memory_;  // b's
};

}  // namespace verbena::rc
