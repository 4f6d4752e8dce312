// ping-sr-2-client: ping-sr-2e's with a thread that waits for CM events, so that the loop that waits for
// completions learns that the peer has gone.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"
#include "common/watched_poll.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-2-client";

void run(const Options& options) {
  CmThread events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  ClientBuffers buffers(queues.pd.get(), options);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  play_client(
      queues.qp(), buffers, options,
      [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); }, statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The client of SEND/RECV ping-pong, stage 2.", Role::kClient}, run);
}
