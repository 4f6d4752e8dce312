#include "common/connect.hpp"

#include "common/address.hpp"

namespace examples {
namespace {

constexpr int kTimeoutMs = 2000;

void begin_resolve_addr(rdma_cm_id* id, const Options& options) {
  const auto address = address_of_server(options.server, options.port);
  check("rdma_resolve_addr", rdma_resolve_addr(id, nullptr, address->ai_addr, kTimeoutMs));
}

}  // namespace

rdma_conn_param connection_parameters(std::span<const std::byte> private_data) {
  rdma_conn_param parameters = {};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(private_data.size());
  parameters.responder_resources = 2;  // READs and atomics of the peer's that we serve at a time
  parameters.initiator_depth = 2;      // and of ours that may be outstanding
  parameters.retry_count = 5;
  parameters.rnr_retry_count = 5;  // for the peer's sends: how often they try again when we have no RECV
  return parameters;
}

void resolve(rdma_cm_id* id, const Options& options) {
  begin_resolve_addr(id, options);
  check("rdma_resolve_route", rdma_resolve_route(id, kTimeoutMs));
}

void resolve(rdma_cm_id* id, const Options& options, CmEvents& events) {
  begin_resolve_addr(id, options);
  events.await(RDMA_CM_EVENT_ADDR_RESOLVED);
  check("rdma_resolve_route", rdma_resolve_route(id, kTimeoutMs));
  events.await(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void connect(rdma_cm_id* id, rdma_conn_param parameters) {
  if (rdma_connect(id, &parameters) == 0) return trace("rdma_connect: connected");
  const int error = errno;
  // A synchronous id keeps the event that its last call ended with, and with it the server's words.
  if (id->event == nullptr || id->event->event != RDMA_CM_EVENT_REJECTED)
    throw Failure("rdma_connect", error);
  const auto& refusal = id->event->param.conn;
  const std::string text = rejection_text(refusal.private_data, refusal.private_data_len);
  throw Failure("rdma_connect: the server rejects us" + (text.empty() ? "" : ": " + text), error);
}

CmEvent connect(rdma_cm_id* id, rdma_conn_param parameters, CmEvents& events) {
  check("rdma_connect", rdma_connect(id, &parameters));
  return events.await(RDMA_CM_EVENT_ESTABLISHED);
}

void accept(rdma_cm_id* id, rdma_conn_param parameters) {
  check("rdma_accept", rdma_accept(id, &parameters));
}

void accept(rdma_cm_id* id, rdma_conn_param parameters, CmEvents& events) {
  check("rdma_accept", rdma_accept(id, &parameters));
  events.await(RDMA_CM_EVENT_ESTABLISHED);
}

void disconnect(rdma_cm_id* id) {
  const int returned = rdma_disconnect(id);
  if (returned != 0 && error_of(returned) == EINVAL)
    trace("rdma_disconnect: the peer was first");
  else
    check_in_teardown("rdma_disconnect", returned);
}

void DisconnectAtEnd::await_peer() {
  events_->await(RDMA_CM_EVENT_DISCONNECTED);
  events_ = nullptr;
}

DisconnectAtEnd::~DisconnectAtEnd() {
  disconnect(id_);
  if (events_ == nullptr) return;
  try {
    events_->await(RDMA_CM_EVENT_DISCONNECTED);  // comes once, whoever was first
  } catch (const Failure& failure) {
    say(failure.what());
  }
}

}  // namespace examples
