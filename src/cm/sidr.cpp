// Datagram services: a question which queue pair serves one, and the answer.
#include "cm/sending.hpp"

namespace verbena::cm {
namespace {

constexpr uint16_t kDefaultPkey = 0xffff;
constexpr uint8_t kQpUd = 4;  // an ibv_qp_type

}  // namespace

using ipc::CmEventKind;

Manager::Done Manager::ask_service(base::Instant now, Connection& connection, const ipc::CmConnect& command) {
  SidrReq req{.request_id = connection.local_id,
              .pkey = kDefaultPkey,
              .service_id = connection.service_id,
              .private_data = {}};
  emit_ip_header({connection.local, connection.remote}, std::span(req.private_data).first<kIpHeaderBytes>());
  const auto& parameters = command.parameters;
  if (auto put = put_private(parameters.private_data, parameters.private_length,
                             std::span(req.private_data).subspan<kIpHeaderBytes>());
      !put) {
    forget(connection);
    return put;
  }
  connection.state = State::kSidrSent;
  send_until_answered(now, connection, req);
  return {};
}

void Manager::on(base::Instant /*now*/, const Way& way, uint64_t transaction, const SidrReq& req) {
  const RequestKey request{.address = way.remote, .number = req.request_id};
  if (const auto found = requests_.find(request); found != requests_.end()) {
    const Connection& connection = connections_.at(found->second);
    if (connection.state == State::kSidrAnswered) mads_.push_back({connection.way, connection.message});
    return;
  }
  const auto turn_away = [&](uint8_t status) {
    Connection nobody{.way = way, .transaction = transaction};
    send(nobody, SidrRep{.request_id = req.request_id,
                         .status = status,
                         .service_id = req.service_id,
                         .info = {},
                         .private_data = {}});
  };
  const auto header = parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>());
  const auto listener = header ? listener_of(way, req.service_id, *header) : IdKey{};
  if (!listener) return turn_away(sidr_status::kUnsupported);
  Connection* const connection = admit(listener, way, transaction, *header);
  if (connection == nullptr) return turn_away(sidr_status::kReject);
  connection->state = State::kSidrReceived;
  connection->remote_id = req.request_id;
  connection->service_id = req.service_id;
  connection->local.port = static_cast<uint16_t>(req.service_id);
  connection->request = request;
  requests_[request] = connection->local_id;
  ipc::CmParameters parameters{
      .qp_type = kQpUd, .traffic_class = way.traffic_class, .hop_limit = way.hop_limit};
  set_private(parameters, std::span(req.private_data).subspan<kIpHeaderBytes>());
  announce(*connection, listener, parameters);
}

Manager::Done Manager::answer_service(base::Instant now, Connection& connection, uint8_t status,
                                      const ipc::CmParameters& parameters) {
  SidrRep rep{.request_id = connection.remote_id,
              .status = status,
              .service_id = connection.service_id,
              .info = {},
              .private_data = {}};
  if (status == sidr_status::kValid) {
    rep.qpn = parameters.qpn;
    rep.qkey = parameters.qkey;
  }
  if (auto put = put_private(parameters.private_data, parameters.private_length, rep.private_data); !put)
    return put;
  connection.state = State::kSidrAnswered;
  send_until_answered(now, connection, rep);
  let_go(connection);
  timers_.set(connection.local_id, now + settings_.answering);
  return {};
}

void Manager::on(base::Instant /*now*/, const Way& /*way*/, uint64_t /*transaction*/, const SidrRep& rep) {
  const auto found = connections_.find(rep.request_id);
  if (found == connections_.end() || found->second.state != State::kSidrSent) return;
  Connection& connection = found->second;
  const bool good = rep.status == sidr_status::kValid;
  // The kernel's RDMA CM calls every answer but a good one unreachable, and programs expect that.
  auto event = event_of(connection, good ? CmEventKind::kEstablished : CmEventKind::kUnreachable, rep.status);
  event.parameters = {.qpn = rep.qpn, .qkey = rep.qkey, .qp_type = kQpUd};
  set_private(event.parameters, rep.private_data);
  tell(connection, event);
  forget(connection);
}

}  // namespace verbena::cm
