// The part of a server that listens. It never moves data: each connection request goes to an agent, in a
// thread of its own, which sets up a connection, serves it and tears it down.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/handles.hpp"
#include "common/options.hpp"
#include "common/terms.hpp"

namespace examples {

/// A client that wants to connect.
struct Request {
  CmId id;                              ///< its id, not yet accepted
  std::vector<std::byte> private_data;  ///< what it sent along
};

using Agent = std::function<void(Request)>;

/// Listens at options.server and gives each request to `agent`. Ends after options.clients of them, and
/// throws then if an agent failed. If only one is served, that is done in the caller's thread. `channel` may
/// be null: the listener's id, and the ids of its requests, are synchronous then.
void serve(const Options& options, rdma_event_channel* channel, const std::string& name, const Agent& agent);

/// What the client proposes; rejects it, with the reason as private data, and throws if that makes no sense.
[[nodiscard]] Terms terms_of(const Request& request);
/// The options that these terms make of a server's own.
[[nodiscard]] Options adopt(Options options, const Terms& terms, const std::string& name);

/// Moves an id to the agent's own channel, so that the listener doesn't take its events.
void migrate(rdma_cm_id* id, rdma_event_channel* channel);

}  // namespace examples
