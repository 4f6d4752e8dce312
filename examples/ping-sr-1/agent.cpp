// ping-sr-1-agent: ping-sr-0's, but count and size are the client's.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-1-agent";

void serve_client(const Request& request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  rdma_cm_id* const id = request.id.get();
  const Queues queues(id, options);
  AgentBuffer buffer(queues.pd.get(), options);
  post_receive(queues.qp(), buffer);
  accept(id, connection_parameters());
  const DisconnectAtEnd at_end(id);

  Statistics statistics(Cpu::kThread);
  play_agent(
      queues.qp(), buffer, options, [&] { return busy_poll(queues.cq.get(), statistics.polls); }, statistics);
  statistics.print(kName);
}

void run(const Options& options) {
  serve(options, nullptr, kName, [&](const Request& request) { serve_client(request, options); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The server of SEND/RECV ping-pong, stage 1.", Role::kServer}, run);
}
