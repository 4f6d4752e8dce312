// blast-sr-2e-agent: receives streams, on the structure of ping-sr-2e.
#include "blast/blast.hpp"
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "blast-sr-2e-agent";

void serve_client(Request request, const Options& ours, const BlastOptions& blast) {
  const Options options = adopt(ours, terms_of(request), kName);
  AwaitedCmEvents events;
  const CmId id = std::move(request.id);
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  BlastBuffers buffers(queues.pd.get(), options.rq_depth, options, IBV_ACCESS_LOCAL_WRITE);
  post_receives(queues.qp(), buffers, options);
  accept(id.get(), blast_parameters(blast), events);
  set_rnr_timer(queues.qp(), blast);
  DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kThread);
  const auto next = [&] { return busy_poll(queues.cq.get(), statistics.polls); };
  take_blast(queues.qp(), buffers, options, blast, next, statistics);
  statistics.print(kName);
  at_end.await_peer();
}

}  // namespace

int main(int argc, char** argv) {
  BlastOptions blast;
  const auto run = [&](const Options& options) {
    const EventChannel channel = create_event_channel();
    serve(options, channel.get(), kName,
          [&](Request request) { serve_client(std::move(request), options, blast); });
  };
  return run_program(argc, argv,
                     {kName, "Receives a stream of messages; does not notice when the sender goes.",
                      Role::kServer, blast_extras(blast)},
                     run, blast_defaults());
}
