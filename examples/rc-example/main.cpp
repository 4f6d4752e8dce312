// rc-example: SEND, RECV, READ and WRITE on a reliable connection that the program makes itself: it picks a
// device by name or GUID, a port and a GID, tells its peer over TCP, and moves its queue pair through its
// states.
#include "common/crowd.hpp"
#include "common/program.hpp"
#include "rc-example/endpoint.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "rc-example";

void serve_client(SideChannel& side, const Place& place, Options options) {
  const Card client = side.receive();
  if (const std::string complaint = client.terms.complaint(); !complaint.empty())
    throw Failure("a client was turned away: " + complaint);
  options.count = client.terms.count;
  options.size = client.terms.size;
  options.sges = static_cast<uint32_t>(std::min<uint64_t>(options.sges, options.size));

  Endpoint endpoint(place, options);
  endpoint.to_init(place);
  ServerBuffers buffers(endpoint.pd.get(), options);
  post_first_receive_of_server(endpoint.qp.get());
  endpoint.connect(place, client);
  side.send(endpoint.card(place, options, buffers.regions()));
  side.meet();  // now the client's queue pair receives as well

  Statistics statistics(Cpu::kThread);
  const auto next = [&] { return busy_poll(endpoint.cq.get(), statistics.polls); };
  play_server(endpoint.qp.get(), buffers, options, next, kName);
  side.meet();  // neither destroys its queue pair while the other still waits for an acknowledgement
}

void run_server(const Place& place, const Options& options) {
  SideListener listener(options.server, options.port);
  fmt::print("{}: listening on TCP port {}\n", kName, listener.port());
  std::fflush(stdout);
  Crowd crowd(kName, options.clients);
  while (!crowd.complete()) {
    const auto side = std::make_shared<SideChannel>(listener.accept());
    crowd.serve([&, side] { serve_client(*side, place, options); });
  }
  crowd.finish();
}

void run_client(const Place& place, const Options& options) {
  SideChannel side(SideChannel::connect(options.server, options.port));
  Endpoint endpoint(place, options);
  endpoint.to_init(place);
  ClientSideBuffers buffers(endpoint.pd.get(), options);
  post_first_receive_of_client(endpoint.qp.get(), buffers);
  side.send(endpoint.card(place, options, {}));
  const Card server = side.receive();
  endpoint.connect(place, server);
  side.meet();

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return busy_poll(endpoint.cq.get(), statistics.polls); };
  play_client(endpoint.qp.get(), buffers, server.regions, options, next, kName);
  side.meet();
}

void run(const Choice& choice, const Options& options) {
  const Place place(choice);
  fmt::print("{}: {} port {}, GID index {}, MTU {}\n", kName, ibv_get_device_name(place.context->device),
             choice.port, choice.gid_index, 128 << place.port.active_mtu);
  options.server.empty() ? run_server(place, options) : run_client(place, options);
}

}  // namespace

int main(int argc, char** argv) {
  Choice choice;
  Options defaults;
  defaults.count = 1;
  return run_program(
      argc, argv,
      {kName,
       "SEND, RECV, READ and WRITE over RC, connected over TCP. With a server's name: the client.",
       Role::kEither,
       {{"-d,--device", "name or GUID of the device; the first, if not given", &choice.device},
        {"-i,--ib-port", "port of the device", &choice.port},
        {"-g,--gid-index", "which of the port's addresses", &choice.gid_index}}},
      [&](const Options& options) { run(choice, options); }, defaults);
}
