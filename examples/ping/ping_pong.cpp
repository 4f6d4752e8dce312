#include "ping/ping_pong.hpp"

#include "common/cm_event.hpp"

namespace examples {
namespace {

using Clock = std::chrono::steady_clock;

/// The pong has come and the ping is known to have arrived. In either order: completions of the two queues of
/// a QP are not ordered among each other.
void await_both(const Options& options, const NextCompletion& next) {
  for (int missing = 2; missing > 0; --missing) {
    const ibv_wc completion = next();
    check_completion(completion);
    if (completion.wr_id == kReceiveWork) check_length(completion, options.size);
  }
}

}  // namespace

void play_client(ibv_qp* qp, ClientBuffers& buffers, const Options& options, const NextCompletion& next,
                 Statistics& statistics) {
  statistics.start();
  for (uint64_t round = 0; round < options.count; ++round) {
    if (options.verify || round == 0) {
      fill_pattern(buffers.ping.bytes(), round);
      clear(buffers.pong.bytes());
    }
    const auto begin = Clock::now();
    post_receive(qp, buffers.pong);  // before the ping, so that the pong finds it
    post_send(qp, buffers.ping);
    await_both(options, next);
    statistics.latency.add((Clock::now() - begin) / 2);
    if (options.verify) verify_pattern(buffers.pong.bytes(), round);
  }
  statistics.stop();
  statistics.messages = 2 * options.count;
  statistics.bytes = 2 * options.count * options.size;
}

void play_agent(ibv_qp* qp, Buffer& buffer, const Options& options, const NextCompletion& next,
                Statistics& statistics) {
  uint64_t received = 0;
  uint64_t posted = 0;
  uint64_t sent = 0;
  while (sent < options.count) {
    ibv_wc completion;
    try {
      completion = next();
    } catch (const Disconnected&) {
      // A client that has the last pong may be gone before we learn that it arrived.
      if (posted == options.count) break;
      throw;
    }
    check_completion(completion);
    if (completion.wr_id == kReceiveWork) {
      check_length(completion, options.size);
      if (received++ == 0) statistics.start();
      // The same buffer, already, for the next ping: the client sends that only when it has the pong.
      if (received < options.count) post_receive(qp, buffer);
    } else {
      ++sent;
    }
    // A ping may overtake the news that the last pong has arrived, and the send queue may have only one
    // place.
    if (posted < received && posted - sent < options.sq_depth) {
      post_send(qp, buffer);
      ++posted;
    }
  }
  statistics.stop();
  statistics.messages = 2 * options.count;
  statistics.bytes = 2 * options.count * options.size;
}

}  // namespace examples
