// A stream in one direction, with as many messages on their way as the queues hold. Nothing slows the sender
// down when the receiver can't follow, but that the receiver has no RECV left: then its queue pair answers
// "receiver not ready", and the sender's waits and tries again.
#pragma once

#include <vector>

#include "common/cm_events.hpp"
#include "common/options.hpp"
#include "common/work.hpp"

namespace examples {

/// What the receiver decides. The first two hold for the *sender's* attempts: a connection's parameters are
/// about the peer's sends.
struct BlastOptions {
  uint32_t rnr_retry = 7;  ///< attempts when there is no RECV; 7 means without end
  uint32_t rnr_timer = 1;  ///< code of the time between them; 1 is 0.01 ms, 0 would be 655.36 ms
  uint32_t slow_us = 0;    ///< wait so long before a RECV is posted again
  bool starve = false;     ///< post each RECV once only
};

/// The options of the receiver's command line.
[[nodiscard]] std::vector<Extra> blast_extras(BlastOptions& blast);
/// Deep enough queues that a stream doesn't stop at each message.
[[nodiscard]] Options blast_defaults();

/// Buffers for as many messages as a queue holds, used in turn.
class BlastBuffers {
 public:
  BlastBuffers(ibv_pd* pd, uint32_t depth, const Options& options, int access);
  [[nodiscard]] Buffer& of(uint64_t message) { return buffers_[message % buffers_.size()]; }
  [[nodiscard]] uint64_t depth() const { return buffers_.size(); }

 private:
  std::vector<Buffer> buffers_;
};

/// Fills the receive queue; before the connection is accepted.
void post_receives(ibv_qp* qp, BlastBuffers& buffers, const Options& options);
/// The parameters that a receiver accepts with, and what it tells its queue pair itself when connected.
[[nodiscard]] rdma_conn_param blast_parameters(const BlastOptions& blast);
void set_rnr_timer(ibv_qp* qp, const BlastOptions& blast);

/// Sends options.count messages.
void blast(ibv_qp* qp, BlastBuffers& buffers, const Options& options, const NextCompletion& next,
           Statistics& statistics);
/// Receives them, checks length, order and bytes.
void take_blast(ibv_qp* qp, BlastBuffers& buffers, const Options& options, const BlastOptions& blast,
                const NextCompletion& next, Statistics& statistics);

}  // namespace examples
