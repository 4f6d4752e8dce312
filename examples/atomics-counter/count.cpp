#include "atomics-counter/count.hpp"

#include <cstring>

namespace examples {
namespace {

constexpr uint64_t kWork = 1;

uint64_t value_of(Buffer& word) {
  uint64_t value;
  std::memcpy(&value, word.bytes().data(), sizeof value);
  return value;
}

/// Of the requests below, what is the same: they move one 8-byte word.
ibv_send_wr request_for(Buffer& word) {
  ibv_send_wr request = {};
  request.wr_id = kWork;
  request.sg_list = word.sges().data();
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

/// Returns the value before. It is in the byte order of the two hosts, which must be the same.
uint64_t fetch_and_add(ibv_qp* qp, Buffer& word, const Region& counter, const NextCompletion& next) {
  ibv_send_wr request = request_for(word);
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic.remote_addr = counter.address;
  request.wr.atomic.rkey = counter.rkey;
  request.wr.atomic.compare_add = 1;
  post(qp, request, "ibv_post_send, FETCH_AND_ADD");
  check_completion(next());
  return value_of(word);
}

uint64_t read_and_write(ibv_qp* qp, Buffer& word, const Region& counter, const NextCompletion& next) {
  ibv_send_wr request = request_for(word);
  request.wr.rdma.remote_addr = counter.address;
  request.wr.rdma.rkey = counter.rkey;
  request.opcode = IBV_WR_RDMA_READ;
  post(qp, request, "ibv_post_send, READ");
  check_completion(next());
  const uint64_t before = value_of(word);
  const uint64_t after = before + 1;
  std::memcpy(word.bytes().data(), &after, sizeof after);
  request.opcode = IBV_WR_RDMA_WRITE;
  post(qp, request, "ibv_post_send, WRITE");
  check_completion(next());
  return before;
}

}  // namespace

uint64_t count_up(ibv_qp* qp, Buffer& word, const Region& counter, Manner manner, const Options& options,
                  const NextCompletion& next, Statistics& statistics) {
  using Clock = std::chrono::steady_clock;
  const bool atomic = manner == Manner::kAtomic;
  uint64_t others = 0;
  uint64_t expected = 0;  // what the counter has if nobody else counted
  statistics.start();
  for (uint64_t step = 0; step < options.count; ++step) {
    const auto begin = Clock::now();
    const uint64_t before =
        atomic ? fetch_and_add(qp, word, counter, next) : read_and_write(qp, word, counter, next);
    statistics.latency.add(Clock::now() - begin);
    if (options.verify && atomic && before < expected)
      throw Failure(fmt::format("the counter went down: from {} to {}", expected, before));
    if (step > 0 && before > expected) others += before - expected;
    expected = before + 1;
  }
  statistics.stop();
  statistics.messages = options.count;
  statistics.bytes = options.count * sizeof(uint64_t);
  statistics.latency_of = "one step";
  return others;
}

}  // namespace examples
