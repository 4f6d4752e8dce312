// The steps of a connection, on both sides and in both manners: synchronous on ids without a channel of the
// program's, asynchronous (each call followed by a wait for its event) on ids with one.
#pragma once

#include <span>

#include "common/cm_events.hpp"
#include "common/options.hpp"

namespace examples {

/// What both ends ask for if a program wants nothing special. `private_data` must live as long as the result.
[[nodiscard]] rdma_conn_param connection_parameters(std::span<const std::byte> private_data = {});

/// Finds the local device and the way to options.server.
void resolve(rdma_cm_id* id, const Options& options);
void resolve(rdma_cm_id* id, const Options& options, CmEvents& events);

/// Returns when connected. The asynchronous one gives what the server sent along.
void connect(rdma_cm_id* id, rdma_conn_param parameters);
CmEvent connect(rdma_cm_id* id, rdma_conn_param parameters, CmEvents& events);

/// Returns when connected. The first RECV should have been posted.
void accept(rdma_cm_id* id, rdma_conn_param parameters);
void accept(rdma_cm_id* id, rdma_conn_param parameters, CmEvents& events);

/// Disconnects when it goes out of scope, before the queues do.
class DisconnectAtEnd {
 public:
  explicit DisconnectAtEnd(rdma_cm_id* id, CmEvents* events = nullptr) : id_(id), events_(events) {}
  ~DisconnectAtEnd();
  /// Waits until the peer disconnects. For the side that can't know whether the other has all its
  /// completions.
  void await_peer();
  DisconnectAtEnd(const DisconnectAtEnd&) = delete;
  DisconnectAtEnd& operator=(const DisconnectAtEnd&) = delete;

 private:
  rdma_cm_id* id_;
  CmEvents* events_;  ///< where DISCONNECTED is awaited; null if the id is synchronous, or when it has come
};

/// rdma_disconnect; that the peer was first isn't an error, though some systems say EINVAL then.
void disconnect(rdma_cm_id* id);

}  // namespace examples
