// ping-sr-4-agent: both channels of an agent non-blocking, one poll(2) for both, no thread beside the
// agent's.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "ping-sr-4/poller.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-4-agent";

void serve_client(Request request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  Poller events;
  const CmId id = std::move(request.id);  // declared after the channel that it lives on
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options, Notify::kByChannel);
  AgentBuffer buffer(queues.pd.get(), options);
  post_receive(queues.qp(), buffer);
  accept(id.get(), connection_parameters(), events);
  DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kThread);
  PolledCompletions completions(events, queues, statistics.polls);
  play_agent(
      queues.qp(), buffer, options, [&] { return completions.next(); }, statistics);
  statistics.print(kName);
  at_end.await_peer();
}

void run(const Options& options) {
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The server of SEND/RECV ping-pong, stage 4.", Role::kServer}, run);
}
