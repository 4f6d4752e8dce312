#include "pair_test.hpp"

namespace verbena::rc {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

AssertionResult next_is(Side& side, Queue queue, uint64_t wr_id, ibv_wc_status status, Wait wait) {
  const ibv_wc found = side.next(queue, wait);
  if (found.status == kNone)
    return AssertionFailure() << "no completion came, where wr_id " << wr_id << " should have "
                              << ibv_wc_status_str(status);
  const uint32_t qpn = side.address().qpn;
  if (found.wr_id == wr_id && found.status == status && found.qp_num == qpn) return AssertionSuccess();
  return AssertionFailure() << "wr_id " << found.wr_id << " of queue pair " << found.qp_num << " has "
                            << ibv_wc_status_str(found.status) << ", where wr_id " << wr_id
                            << " of queue pair " << qpn << " should have " << ibv_wc_status_str(status);
}

AssertionResult nothing_comes(Side& side, Queue queue, Wait wait) {
  const ibv_wc found = side.next(queue, wait);
  if (found.status == kNone) return AssertionSuccess();
  return AssertionFailure() << "wr_id " << found.wr_id << " completed with "
                            << ibv_wc_status_str(found.status) << ", where nothing should";
}

AssertionResult event_is(Side& side, ibv_event_type type) {
  const Event found = side.next_event();
  if (!found.came)
    return AssertionFailure() << "no event came, where " << ibv_event_type_str(type) << " should";
  if (found.type != type)
    return AssertionFailure() << "the event is " << ibv_event_type_str(found.type) << ", not "
                              << ibv_event_type_str(type);
  if (!found.own) return AssertionFailure() << ibv_event_type_str(type) << " is about something else";
  return AssertionSuccess();
}

AssertionResult no_event(Side& side, Wait wait) {
  const Event found = side.next_event(wait);
  if (!found.came) return AssertionSuccess();
  return AssertionFailure() << "an event, " << ibv_event_type_str(found.type) << ", where none should come";
}

AssertionResult state_is(Side& side, ibv_qp_state state) {
  const ibv_qp_attr found = side.query();
  if (found.qp_state == state && found.cur_qp_state == state) return AssertionSuccess();
  return AssertionFailure() << "the queue pair is in state " << found.qp_state << " (cur_qp_state "
                            << found.cur_qp_state << "), not " << state;
}

}  // namespace verbena::rc
