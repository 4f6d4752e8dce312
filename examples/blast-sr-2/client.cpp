// blast-sr-2-client: sends a stream, on the structure of ping-sr-2: busy polling, and a thread for CM events.
#include "blast/blast.hpp"
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"
#include "common/watched_poll.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "blast-sr-2-client";

void run(const Options& options) {
  CmThread events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  BlastBuffers buffers(queues.pd.get(), options.sq_depth, options, 0);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); };
  blast(queues.qp(), buffers, options, next, statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv,
                     {kName, "Sends a stream of messages; notices when the receiver goes.", Role::kClient},
                     run, blast_defaults());
}
