// blast-sr-2e-client: sends a stream, on the structure of ping-sr-2e: busy polling, and nobody who looks for
// CM events meanwhile.
#include "blast/blast.hpp"
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "blast-sr-2e-client";

void run(const Options& options) {
  AwaitedCmEvents events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  BlastBuffers buffers(queues.pd.get(), options.sq_depth, options, 0);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return busy_poll(queues.cq.get(), statistics.polls); };
  blast(queues.qp(), buffers, options, next, statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv,
      {kName, "Sends a stream of messages; does not notice when the receiver goes.", Role::kClient}, run,
      blast_defaults());
}
