// ping-sr-0-agent: the server of ping-sr-0-client. Count and size are its own options: nobody tells it the
// client's.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-0-agent";

void serve_client(const Request& request, const Options& options) {
  rdma_cm_id* const id = request.id.get();  // synchronous, as the listener's
  const Queues queues(id, options);
  AgentBuffer buffer(queues.pd.get(), options);
  post_receive(queues.qp(), buffer);  // before the client can send
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
  return run_program(argc, argv, {kName, "The server of SEND/RECV ping-pong, stage 0.", Role::kServer}, run);
}
