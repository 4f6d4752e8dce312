// ping-sr-2-agent: ping-sr-2e's with a thread for CM events beside each agent, so that an agent whose client
// has gone ends.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "common/watched_poll.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-2-agent";

void serve_client(Request request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  CmThread events;
  const CmId id = std::move(request.id);  // declared after the channel that it lives on
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  AgentBuffer buffer(queues.pd.get(), options);
  post_receive(queues.qp(), buffer);
  accept(id.get(), connection_parameters(), events);
  DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kThread);
  play_agent(
      queues.qp(), buffer, options,
      [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); }, statistics);
  statistics.print(kName);
  at_end.await_peer();
}

void run(const Options& options) {
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The server of SEND/RECV ping-pong, stage 2.", Role::kServer}, run);
}
