#include "common/server.hpp"

#include <arpa/inet.h>

#include "common/address.hpp"
#include "common/cm_event.hpp"
#include "common/crowd.hpp"

namespace examples {
namespace {

constexpr int kBacklog = 64;

CmId listen(const Options& options, rdma_event_channel* channel, const std::string& name) {
  CmId listener = create_id(channel);
  const auto address = address_to_listen(options.server, options.port);
  check("rdma_bind_addr", rdma_bind_addr(listener.get(), address->ai_addr));
  check("rdma_listen", rdma_listen(listener.get(), kBacklog));
  fmt::print("{}: listening on port {}\n", name, ntohs(rdma_get_src_port(listener.get())));
  std::fflush(stdout);
  return listener;
}

}  // namespace

void serve(const Options& options, rdma_event_channel* channel, const std::string& name, const Agent& agent) {
  const CmId listener = listen(options, channel, name);
  Crowd crowd(name, options.clients);
  while (!crowd.complete()) {
    CmEvent event = take_cm_event(listener->channel).value();
    if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) {
      say(fmt::format("{}: {} instead of a connection request", name, rdma_event_str(event.type)));
      continue;
    }
    // std::function wants what can be copied, and an id can't.
    auto request = std::make_shared<Request>(CmId(event.id), std::move(event.private_data));
    crowd.serve([agent, request] { agent(std::move(*request)); });
  }
  crowd.finish();
}

Terms terms_of(const Request& request) {
  const auto terms = Terms::from_wire(request.private_data);
  const std::string complaint = terms ? terms->complaint() : "the request says neither count nor size";
  if (complaint.empty()) return *terms;
  const auto length = static_cast<uint8_t>(complaint.size() + 1);
  check("rdma_reject", rdma_reject(request.id.get(), complaint.c_str(), length));
  throw Failure("a client was rejected: " + complaint);
}

Options adopt(Options options, const Terms& terms, const std::string& name) {
  fmt::print("{}: a client wants count {} and size {}; ours were {} and {}\n", name, terms.count, terms.size,
             options.count, options.size);
  std::fflush(stdout);
  options.count = terms.count;
  options.size = terms.size;
  if (options.sges > options.size) options.sges = static_cast<uint32_t>(options.size);
  return options;
}

void migrate(rdma_cm_id* id, rdma_event_channel* channel) {
  check("rdma_migrate_id", rdma_migrate_id(id, channel));
}

}  // namespace examples
