#include "common/cm_events.hpp"

namespace examples {

CmEvent AwaitedCmEvents::await(rdma_cm_event_type expected) {
  CmEvent event = take_cm_event(channel()).value();
  expect(event, expected);
  return event;
}

}  // namespace examples
