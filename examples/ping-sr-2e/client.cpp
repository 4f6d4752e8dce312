// ping-sr-2e-client: ping-sr-1's with an event channel of its own. CM calls return at once; each is followed
// by a wait for the event that tells its result. While data moves nobody looks at the channel.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-2e-client";

void run(const Options& options) {
  AwaitedCmEvents events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  ClientBuffers buffers(queues.pd.get(), options);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  play_client(
      queues.qp(), buffers, options, [&] { return busy_poll(queues.cq.get(), statistics.polls); },
      statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The client of SEND/RECV ping-pong, stage 2e.", Role::kClient}, run);
}
