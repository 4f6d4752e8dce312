// atomics-counter: many clients count on one 64-bit word in the server's memory. The server's processor has
// no part in it; it learns of nothing but the clients' coming and going.
#include "atomics-counter/count.hpp"
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "common/watched_poll.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "atomics-counter";
// LOCAL_WRITE goes with REMOTE_ATOMIC and REMOTE_WRITE always. The last two are for --racy only.
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

/// The word that all clients count on. Others write it, so that the compiler mustn't think it knows its
/// value.
alignas(8) volatile uint64_t counter = 0;

/// One client's way to the counter. Each has a registration of its own, in a protection domain of its own.
void serve_client(Request request, const Options& options) {
  AwaitedCmEvents events;
  const CmId id = std::move(request.id);
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  auto* const word = const_cast<uint64_t*>(&counter);
  const Mr mr(check_new("ibv_reg_mr", ibv_reg_mr(queues.pd.get(), word, sizeof counter, kAccess)));
  const auto region = Region{reinterpret_cast<uint64_t>(word), mr->rkey}.to_wire();
  accept(id.get(), connection_parameters(region), events);
  events.await(RDMA_CM_EVENT_DISCONNECTED);  // asleep: there is nothing to do for us
  disconnect(id.get());
  fmt::print("{}: a client has gone; the counter is at {}\n", kName, static_cast<uint64_t>(counter));
  std::fflush(stdout);
}

void run_server(const Options& options) {
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
  fmt::print("{}: in the end the counter is at {}\n", kName, static_cast<uint64_t>(counter));
}

void run_client(const Options& options, Manner manner) {
  CmThread events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  Buffer word(queues.pd.get(), sizeof counter, IBV_ACCESS_LOCAL_WRITE);
  const CmEvent established = connect(id.get(), connection_parameters(), events);
  const DisconnectAtEnd at_end(id.get(), &events);
  const auto region = Region::from_wire(established.private_data);
  if (!region) throw Failure("the server's answer doesn't say where its counter is");

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); };
  const uint64_t others = count_up(queues.qp(), word, *region, manner, options, next, statistics);
  fmt::print("{}: counted {}; others came between {} times\n", kName, options.count, others);
  statistics.print(kName);
}

}  // namespace

int main(int argc, char** argv) {
  bool racy = false;
  const auto run = [&](const Options& options) {
    options.server.empty() ? run_server(options)
                           : run_client(options, racy ? Manner::kRacy : Manner::kAtomic);
  };
  return run_program(
      argc, argv,
      {kName,
       "A counter in one server's memory that many clients count on. With a server's name: a client.",
       Role::kEither,
       {{"--racy", "as a client: READ, add and WRITE instead of an atomic operation; counts get lost",
         &racy}}},
      run);
}
