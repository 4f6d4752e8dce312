// The game itself, the same in all stages: the client sends a ping and gets it back as a pong.
#pragma once

#include "common/options.hpp"
#include "common/work.hpp"

namespace examples {

/// The client's two buffers: one that is only sent from, so that it needs no access flag, and one to receive
/// into. With one for both there would be nothing left to compare the pong with.
struct ClientBuffers {
  ClientBuffers(ibv_pd* pd, const Options& options)
      : ping(pd, options.size, 0, options.sges),
        pong(pd, options.size, IBV_ACCESS_LOCAL_WRITE, options.sges) {}
  Buffer ping;
  Buffer pong;
};

/// The agent's only buffer: what came in goes out.
struct AgentBuffer : Buffer {
  AgentBuffer(ibv_pd* pd, const Options& options)
      : Buffer(pd, options.size, IBV_ACCESS_LOCAL_WRITE, options.sges) {}
};

/// options.count round trips, measured and verified.
void play_client(ibv_qp* qp, ClientBuffers& buffers, const Options& options, const NextCompletion& next,
                 Statistics& statistics);
/// Answers options.count pings. `next` throws Disconnected when it notices that the client has gone. The
/// first RECV was posted before the connection was accepted.
void play_agent(ibv_qp* qp, Buffer& buffer, const Options& options, const NextCompletion& next,
                Statistics& statistics);

}  // namespace examples
