// memory-window: a server lends parts of its memory to clients, each for as long as it takes to write one
// message.
#include "common/connect.hpp"
#include "common/program.hpp"
#include "common/queues.hpp"
#include "common/server.hpp"
#include "common/watched_poll.hpp"
#include "memory-window/lend.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "memory-window";

void serve_client(Request request, const Options& ours) {
  const Options options = adopt(ours, terms_of(request), kName);
  CmThread events;
  const CmId id = std::move(request.id);
  migrate(id.get(), events.channel());
  const Queues queues(id.get(), options);
  Lender lender(queues.pd.get(), options);
  lender.expect_return(queues.qp());
  accept(id.get(), connection_parameters(), events);
  DisconnectAtEnd at_end(id.get(), &events);
  PollCounts polls;
  lender.lend(queues.qp(), options, [&] { return poll_unless_disconnected(queues.cq.get(), events, polls); });
  fmt::print("{}: lent and got back {} times\n", kName, options.count);
  std::fflush(stdout);
  at_end.await_peer();
}

void run_server(const Options& options) {
  const EventChannel channel = create_event_channel();
  serve(options, channel.get(), kName, [&](Request request) { serve_client(std::move(request), options); });
}

void run_client(const Options& options, bool late) {
  CmThread events;
  const CmId id = create_id(events.channel());
  resolve(id.get(), options, events);
  const Queues queues(id.get(), options);
  Borrower borrower(queues.pd.get(), options);
  borrower.expect_loan(queues.qp());
  const auto terms = Terms{options.count, options.size}.to_wire();
  connect(id.get(), connection_parameters(terms), events);
  const DisconnectAtEnd at_end(id.get(), &events);

  Statistics statistics(Cpu::kProcess);
  const auto next = [&] { return poll_unless_disconnected(queues.cq.get(), events, statistics.polls); };
  const Region last = borrower.borrow(queues.qp(), options, next, statistics);
  statistics.print(kName);
  if (!late) return;
  const ibv_wc_status status = borrower.write_late(queues.qp(), last, next);
  fmt::print("{}: a WRITE after the window was given back: {}\n", kName, ibv_wc_status_str(status));
  if (status != IBV_WC_REM_ACCESS_ERR) throw Failure("it should have been a remote access error");
}

}  // namespace

int main(int argc, char** argv) {
  bool late = false;
  const auto run = [&](const Options& options) {
    options.server.empty() ? run_server(options) : run_client(options, late);
  };
  return run_program(
      argc, argv,
      {kName,
       "A server lends parts of its memory through a memory window. With a server's name: a client.",
       Role::kEither,
       {{"--late", "as a client: write once more when the window was given back", &late}}},
      run);
}
