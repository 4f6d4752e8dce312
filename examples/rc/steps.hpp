// What rc-example and rc-example-cm do once their queue pairs are connected: SEND and RECV, READ, WRITE.
//
//   server                                  client
//   SEND a message                      ->  RECV
//   (nothing: READ leaves no trace)     <-  READ from the server's readable buffer
//   (nothing: nor does WRITE)           <-  WRITE to the server's writable buffer
//   RECV, then look what was written    <-  SEND of no bytes: "I have written"
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/region.hpp"
#include "common/work.hpp"

namespace examples {

/// The server's two regions, as they travel to the client.
struct Regions {
  Region readable;
  Region writable;

  using Wire = std::array<std::byte, 2 * sizeof(Region::Wire)>;
  [[nodiscard]] Wire to_wire() const;
  static std::optional<Regions> from_wire(std::span<const std::byte> bytes);
};

/// Each buffer has the access that its use needs, and no more. LOCAL_WRITE goes with REMOTE_WRITE always.
struct ServerBuffers {
  ServerBuffers(ibv_pd* pd, const Options& options);
  [[nodiscard]] Regions regions() const;

  Buffer outgoing;  ///< SENT to the client
  Buffer readable;  ///< READ by the client
  Buffer writable;  ///< WRITTEN by the client
};

struct ClientSideBuffers {
  ClientSideBuffers(ibv_pd* pd, const Options& options);

  Buffer incoming;  ///< RECEIVED from the server
  Buffer sink;      ///< what is READ goes here
  Buffer source;    ///< WRITTEN to the server
};

/// Each side posts its first RECV before the queue pairs are connected.
void post_first_receive_of_server(ibv_qp* qp);
void post_first_receive_of_client(ibv_qp* qp, ClientSideBuffers& buffers);

/// options.count rounds.
void play_server(ibv_qp* qp, ServerBuffers& buffers, const Options& options, const NextCompletion& next,
                 const std::string& name);
void play_client(ibv_qp* qp, ClientSideBuffers& buffers, const Regions& server, const Options& options,
                 const NextCompletion& next, const std::string& name);

}  // namespace examples
