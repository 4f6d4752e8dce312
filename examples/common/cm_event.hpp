// Events of the connection manager.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/trace.hpp"

namespace examples {

/// What a program wants to know of an event after it was acknowledged: copied out, for the event is gone
/// then.
struct CmEvent {
  rdma_cm_event_type type;
  int status;      ///< 0, a negative errno, or the reason of a rejection
  rdma_cm_id* id;  ///< a connection request's is new, and the receiver's to destroy
  std::vector<std::byte>
      private_data;  ///< of connected services; longer than what was sent, filled with zeros
  rdma_ud_param ud;  ///< of UD: how to reach the peer or the group; its private_data isn't valid
};

/// rdma_get_cm_event, copy, rdma_ack_cm_event. Blocks as the channel does; nothing if that is non-blocking
/// and empty.
[[nodiscard]] std::optional<CmEvent> take_cm_event(rdma_event_channel* channel);

/// Throws unless the event is the expected one; tells what a server said that rejected us.
void expect(const CmEvent& event, rdma_cm_event_type expected);

/// The connection has ended while a program still waited for a completion.
class Disconnected : public Failure {
 public:
  explicit Disconnected(int error_number)
      : Failure("the peer disconnected before we were done", error_number) {}
};

/// The errno that a connection ended with: ECONNRESET, or the event's status.
[[nodiscard]] int reason_of(const CmEvent& disconnected);

/// Text that a server sent along with its rejection.
[[nodiscard]] std::string rejection_text(const void* private_data, std::size_t length);

}  // namespace examples
