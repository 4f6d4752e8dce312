// ping-sr-3-client: ping-sr-2's with a completion channel: it sleeps until there is a completion.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"
#include "ping-sr-3/notified.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-3-client";

void run(const Options& options) {
  CmThread events(wake_by_flushing);
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options, Notify::kByChannel);
  ClientBuffers buffers(queues.pd.get(), options);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  NotifiedCompletions completions(queues, events, statistics.polls);
  play_client(
      queues.qp(), buffers, options, [&] { return completions.next(); }, statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The client of SEND/RECV ping-pong, stage 3.", Role::kClient}, run);
}
