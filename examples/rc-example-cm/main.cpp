// rc-example-cm: SEND, RECV, READ and WRITE on a reliable connection that RDMA CM makes. Count and size
// travel with the client's request, the server's regions with its answer: no other channel is needed.
#include <algorithm>

#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "common/watched_poll.hpp"
#include "rc/steps.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "rc-example-cm";

void serve_client(Request request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  CmThread events;
  const CmId id = std::move(request.id);
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  ServerBuffers buffers(queues.pd.get(), options);
  post_first_receive_of_server(queues.qp());
  const auto regions = buffers.regions().to_wire();
  accept(id.get(), connection_parameters(regions), events);
  DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kThread);
  const auto next = [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); };
  play_server(queues.qp(), buffers, options, next, kName);
  at_end.await_peer();
}

void run_client(const Options& options) {
  CmThread events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  ClientSideBuffers buffers(queues.pd.get(), options);
  post_first_receive_of_client(queues.qp(), buffers);
  const auto terms = Terms{options.count, options.size}.to_wire();
  const CmEvent established = connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);
  const auto server = Regions::from_wire(established.private_data);
  if (!server) throw Failure("the server's answer lacks its regions");

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); };
  play_client(queues.qp(), buffers, *server, options, next, kName);
}

void run(Options options) {
  options.sq_depth = std::max(options.sq_depth, 2u);  // a WRITE and the SEND after it
  if (!options.server.empty()) return run_client(options);
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
}

}  // namespace

int main(int argc, char** argv) {
  Options defaults;
  defaults.count = 1;
  return run_program(
      argc, argv,
      {kName, "SEND, RECV, READ and WRITE over RC, connected by RDMA CM. With a server's name: the client.",
       Role::kEither},
      run, defaults);
}
