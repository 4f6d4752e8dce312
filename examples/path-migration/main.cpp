// path-migration: a connection with two paths, between two ports of each end's device. When the first one
// fails the devices change to the second, and the program learns of it by an event only.
#include "common/program.hpp"
#include "path-migration/paths.hpp"
#include "ping/ping_pong.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "path-migration";

struct Wish {
  Choice choice;
  uint32_t other_port = 2;
  uint64_t migrate_after = 0;  ///< round trips; 0: never
};

/// Two cards: one for each path. Of the second only the address counts.
Card exchange(SideChannel& side, const Card& own, const OtherPort& other, Card& peer_there) {
  Card there = own;
  there.lid = other.port.lid;
  there.gid = other.gid;
  side.send(own);
  side.send(there);
  const Card peer = side.receive();
  peer_there = side.receive();
  return peer;
}

/// Takes completions and tells how it goes; the client's changes the path when its time has come.
class Journey {
 public:
  Journey(Endpoint& endpoint, uint64_t migrate_after) : endpoint_(endpoint), migrate_after_(migrate_after) {}

  ibv_wc next(Statistics& statistics) {
    const ibv_wc completion = busy_poll(endpoint_.cq.get(), statistics.polls);
    if (completion.wr_id == kReceiveWork) {
      ++trips_;
      if (migrate_after_ != 0 && trips_ >= migrate_after_) migrate_once_armed();
    }
    if (const auto now = Clock::now(); now >= tell_) {
      const PathState path = path_of(endpoint_.qp.get());
      fmt::print("{}: {} messages came; {}, the path is that of port {}\n", kName, trips_,
                 name_of(path.state), path.port);
      std::fflush(stdout);
      tell_ = now + std::chrono::milliseconds(500);
    }
    return completion;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void migrate_once_armed() {
    if (path_of(endpoint_.qp.get()).state != IBV_MIG_ARMED) return;
    migrate_after_ = 0;
    migrate(endpoint_.qp.get());
    fmt::print("{}: changed the path after {} round trips\n", kName, trips_);
  }

  Endpoint& endpoint_;
  uint64_t migrate_after_;
  uint64_t trips_ = 0;
  Clock::time_point tell_ = Clock::now();
};

void serve_client(SideChannel& side, const Place& place, const OtherPort& other, Options options) {
  Endpoint endpoint(place, options);
  endpoint.to_init(place);
  AgentBuffer buffer(endpoint.pd.get(), options);
  post_receive(endpoint.qp.get(), buffer);
  Card client_there;
  const Card client = exchange(side, endpoint.card(place, options, {}), other, client_there);
  if (client.terms.size != options.size)
    throw Failure(
        fmt::format("the client's messages have {} bytes, ours {}", client.terms.size, options.size));
  options.count = client.terms.count;
  endpoint.connect(place, client);
  load_alternate_path(endpoint.qp.get(), other, client_there);
  side.meet();  // now both receive

  Statistics statistics(Cpu::kThread);
  Journey journey(endpoint, 0);
  play_agent(
      endpoint.qp.get(), buffer, options, [&] { return journey.next(statistics); }, statistics);
  statistics.print(kName);
  side.meet();
}

void run_server(const Place& place, const OtherPort& other, const Options& options) {
  SideListener listener(options.server, options.port);
  fmt::print("{}: listening on TCP port {}\n", kName, listener.port());
  std::fflush(stdout);
  SideChannel side(listener.accept());
  serve_client(side, place, other, options);
}

void run_client(const Place& place, const OtherPort& other, const Options& options, uint64_t migrate_after) {
  SideChannel side(SideChannel::connect(options.server, options.port));
  Endpoint endpoint(place, options);
  endpoint.to_init(place);
  ClientBuffers buffers(endpoint.pd.get(), options);
  Card server_there;
  const Card server = exchange(side, endpoint.card(place, options, {}), other, server_there);
  endpoint.connect(place, server);
  load_alternate_path(endpoint.qp.get(), other, server_there);
  side.meet();

  Statistics statistics(Cpu::kProcess);
  Journey journey(endpoint, migrate_after);
  play_client(
      endpoint.qp.get(), buffers, options, [&] { return journey.next(statistics); }, statistics);
  const PathState path = path_of(endpoint.qp.get());
  fmt::print("{}: in the end {}, the path is that of port {}\n", kName, name_of(path.state), path.port);
  statistics.print(kName);
  side.meet();
}

void run(const Wish& wish, const Options& options) {
  const Place place(wish.choice);
  const OtherPort other(place, wish.other_port);
  const EventWatch events(place.context.get(), kName);
  options.server.empty() ? run_server(place, other, options)
                         : run_client(place, other, options, wish.migrate_after);
}

}  // namespace

int main(int argc, char** argv) {
  Wish wish;
  return run_program(
      argc, argv,
      {kName,
       "A connection that changes its path. With a server's name: the client.",
       Role::kEither,
       {{"-d,--device", "name or GUID of the device; the first, if not given", &wish.choice.device},
        {"-i,--ib-port", "port of the device for the first path", &wish.choice.port},
        {"-o,--other-port", "port of the device for the other path", &wish.other_port},
        {"-m,--migrate", "client: change the path after so many round trips", &wish.migrate_after}}},
      [&](const Options& options) { run(wish, options); });
}
