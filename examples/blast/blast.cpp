#include "blast/blast.hpp"

#include <unistd.h>

#include <algorithm>

#include "common/connect.hpp"

namespace examples {

using Clock = std::chrono::steady_clock;

std::vector<Extra> blast_extras(BlastOptions& blast) {
  return {
      {"--rnr-retry", "how often the sender may try again when no RECV is posted (7: without end)",
       &blast.rnr_retry},
      {"--rnr-timer", "code of the time between two attempts (1: 0.01 ms, 0: 655.36 ms)", &blast.rnr_timer},
      {"--slow-us", "wait so many microseconds before posting a RECV again", &blast.slow_us},
      {"--starve", "post no RECV but the first --rq-depth: the sender fails, unless --rnr-retry is 7",
       &blast.starve}};
}

Options blast_defaults() {
  Options options;
  options.sq_depth = 64;
  options.rq_depth = 128;
  options.size = 4096;
  options.count = 10000;
  return options;
}

BlastBuffers::BlastBuffers(ibv_pd* pd, uint32_t depth, const Options& options, int access) {
  const uint64_t needed = std::min<uint64_t>(depth, options.count);
  for (uint64_t i = 0; i < needed; ++i) buffers_.emplace_back(pd, options.size, access, options.sges);
}

void post_receives(ibv_qp* qp, BlastBuffers& buffers, const Options& options) {
  for (uint64_t message = 0; message < std::min(buffers.depth(), options.count); ++message)
    post_receive(qp, buffers.of(message), message);
}

rdma_conn_param blast_parameters(const BlastOptions& blast) {
  rdma_conn_param parameters = connection_parameters();
  parameters.rnr_retry_count = static_cast<uint8_t>(std::min(blast.rnr_retry, 7u));
  return parameters;
}

void set_rnr_timer(ibv_qp* qp, const BlastOptions& blast) {
  ibv_qp_attr attributes = {};
  attributes.min_rnr_timer = static_cast<uint8_t>(std::min(blast.rnr_timer, 31u));
  check("ibv_modify_qp", ibv_modify_qp(qp, &attributes, IBV_QP_MIN_RNR_TIMER));
}

void blast(ibv_qp* qp, BlastBuffers& buffers, const Options& options, const NextCompletion& next,
           Statistics& statistics) {
  std::vector<Clock::time_point> begun(buffers.depth());
  statistics.start();
  uint64_t posted = 0;
  for (uint64_t completed = 0; completed < options.count; ++completed) {
    for (; posted < options.count && posted - completed < buffers.depth(); ++posted) {
      if (options.verify || posted < buffers.depth()) fill_pattern(buffers.of(posted).bytes(), posted);
      begun[posted % buffers.depth()] = Clock::now();
      post_send(qp, buffers.of(posted), posted);
    }
    check_completion(next());  // a send queue's completions come in order
    statistics.latency.add(Clock::now() - begun[completed % buffers.depth()]);
    statistics.bytes += options.size;
    ++statistics.messages;
  }
  statistics.stop();
  statistics.latency_of = "post to completion";
}

void take_blast(ibv_qp* qp, BlastBuffers& buffers, const Options& options, const BlastOptions& blast,
                const NextCompletion& next, Statistics& statistics) {
  for (uint64_t message = 0; message < options.count; ++message) {
    const ibv_wc completion = next();
    check_completion(completion);
    if (completion.wr_id != message)
      throw Failure(fmt::format("message {} is in the RECV of message {}", message, completion.wr_id));
    check_length(completion, options.size);
    if (message == 0) statistics.start();
    Buffer& buffer = buffers.of(message);
    if (options.verify) verify_pattern(buffer.bytes(), message);
    statistics.bytes += options.size;
    ++statistics.messages;
    if (blast.slow_us > 0) ::usleep(blast.slow_us);
    if (message + buffers.depth() < options.count && !blast.starve) {
      if (options.verify) clear(buffer.bytes());
      post_receive(qp, buffer, message + buffers.depth());
    }
  }
  statistics.stop();
}

}  // namespace examples
