// ping-sr-0-client: SEND/RECV ping-pong with as little as possible. No channel is created: CM calls block,
// completions are polled for.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-0-client";

// Tear-down is this function's end: each object goes before what it was made from.
void run(const Options& options) {
  const CmId id = create_id(nullptr);
  resolve(id.get(), options);
  const Queues queues(id.get(), options);
  ClientBuffers buffers(queues.pd.get(), options);
  connect(id.get(), connection_parameters());
  const DisconnectAtEnd at_end(id.get());

  Statistics statistics(Cpu::kProcess);
  play_client(
      queues.qp(), buffers, options, [&] { return busy_poll(queues.cq.get(), statistics.polls); },
      statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The client of SEND/RECV ping-pong, stage 0.", Role::kClient}, run);
}
