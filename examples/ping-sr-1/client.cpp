// ping-sr-1-client: ping-sr-0's, and it tells the server count and size in its connection request.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/terms.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "ping-sr-1-client";

void run(const Options& options) {
  const CmId id = create_id(nullptr);
  resolve(id.get(), options);
  const Queues queues(id.get(), options);
  ClientBuffers buffers(queues.pd.get(), options);
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms));
  const DisconnectAtEnd at_end(id.get());

  Statistics statistics(Cpu::kProcess);
  play_client(
      queues.qp(), buffers, options, [&] { return busy_poll(queues.cq.get(), statistics.polls); },
      statistics);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "The client of SEND/RECV ping-pong, stage 1.", Role::kClient}, run);
}
