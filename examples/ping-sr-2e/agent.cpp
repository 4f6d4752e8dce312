// ping-sr-2e-agent: ping-sr-1's with event channels: one that the listener waits on, and one for each agent,
// to which the id of its client is moved.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-2e-agent";

void serve_client(Request request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  AwaitedCmEvents events;
  const CmId id = std::move(request.id);  // declared after the channel that it lives on
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  AgentBuffer buffer(queues.pd.get(), options);
  post_receive(queues.qp(), buffer);
  accept(id.get(), connection_parameters(), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kThread);
  play_agent(
      queues.qp(), buffer, options, [&] { return busy_poll(queues.cq.get(), statistics.polls); }, statistics);
  statistics.print(kName);
}

void run(const Options& options) {
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The server of SEND/RECV ping-pong, stage 2e.", Role::kServer}, run);
}
