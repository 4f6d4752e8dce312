// How a program with an event channel of its own waits for CM events. The interface, and the plainest way.
#pragma once

#include "common/cm_event.hpp"
#include "common/handles.hpp"

namespace examples {

class CmEvents {
 public:
  CmEvents() : channel_(create_event_channel()) {}
  virtual ~CmEvents() = default;
  CmEvents(const CmEvents&) = delete;
  CmEvents& operator=(const CmEvents&) = delete;

  [[nodiscard]] rdma_event_channel* channel() const { return channel_.get(); }
  /// Waits for the next event; throws unless it is the expected one. Not for two threads at once.
  virtual CmEvent await(rdma_cm_event_type expected) = 0;

 private:
  EventChannel channel_;
};

/// Blocks in rdma_get_cm_event whenever an event is due, and looks at the channel at no other time.
class AwaitedCmEvents : public CmEvents {
 public:
  CmEvent await(rdma_cm_event_type expected) override;
};

}  // namespace examples
