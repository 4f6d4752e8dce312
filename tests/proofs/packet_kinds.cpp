#include "packet_kinds.hpp"

#include <stdexcept>

#include "roce/print.hpp"

namespace verbena::test {

using engine::Request;
using roce::Operation;
using roce::Packet;
using roce::Service;

namespace {

std::span<const std::byte> payload(size_t bytes) {
  static const std::vector<std::byte> kBytes = [] {
    std::vector<std::byte> made(kMtu);
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(i * 37 + 11);
    return made;
  }();
  return std::span(kBytes).first(bytes);
}

Packet request(Service service, Operation operation, uint32_t place) {
  Packet packet;
  packet.bth.service = service;
  packet.bth.operation = operation;
  packet.bth.destination = kOwn;
  packet.bth.psn = kExpected + place;
  const auto& info = packet.info();
  packet.bth.ack_request = info.last && (service == Service::kRc || service == Service::kXrc);
  const bool whole = info.first && info.last;
  if (info.payload) packet.payload = payload(!info.last ? kMtu : whole ? 29 : 45);
  if (info.reth) packet.reth = {kAddress + 8, kKey, whole ? 29u : kMtu + 45};
  if (operation == Operation::kReadRequest) packet.reth = {kAddress + 8, kKey, 600};
  if (info.atomic_write) packet.reth = {kAddress + 16, kKey, 8};
  if (info.atomic_write) packet.payload = payload(8);
  if (info.atomic_eth) packet.atomic = {kAddress + 16, kKey, 5, 0};
  if (info.deth) packet.deth = {kQkey, kPeer};
  if (info.imm) packet.imm = 0xcafe;
  if (info.ieth) packet.invalidate_key = kWindow;
  if (info.xrc_eth) packet.xrc_srq = kSharedQueues - 1;
  return packet;
}

Packet answer(Service service, Operation operation, uint32_t place, size_t bytes) {
  Packet packet;
  packet.bth.service = service;
  packet.bth.operation = operation;
  packet.bth.destination = kOwn;
  packet.bth.psn = kSent + place;
  packet.aeth = {roce::syndrome::kNoCredits, 1};
  packet.atomic_before = 77;
  packet.payload = payload(bytes);
  return packet;
}

void take(PortRig& rig, const Packet& packet, Way way) {
  if (const auto reason = rig.receive(bytes_of(packet, way)); reason != wire::Drop::kNone)
    throw std::logic_error("the packet before it was refused: " + std::string(wire::name_of(reason)));
}

// What the middle or the end of a message needs before it.
std::function<void(PortRig&, Way)> after(Service service, bool send, bool middle) {
  return [=](PortRig& rig, Way way) {
    rig.connection.actions.post_receives(1);
    Packet first = request(service, send ? Operation::kSendFirst : Operation::kWriteFirst, 0);
    if (!send && middle) first.reth.length = 2 * kMtu + 45;
    take(rig, first, way);
  };
}

void add_requests(std::vector<PacketKind>& kinds, Service service,
                  std::initializer_list<Operation> operations) {
  for (const auto operation : operations) {
    Packet packet = request(service, operation, 0);
    const auto& info = packet.info();
    if (!info.first) packet.bth.psn = kExpected + 1;
    kinds.push_back(
        {std::string(roce::service_name(service)) + " " + std::string(roce::operation_name(operation)),
         service, packet,
         info.first ? [](PortRig& rig, Way) { rig.connection.actions.post_receives(1); }
                    : after(service, info.send, !info.last)});
  }
}

void add_answer(std::vector<PacketKind>& kinds, const Packet& packet, const Request& request,
                uint32_t answered) {
  const Service service = packet.bth.service;
  kinds.push_back({std::string(roce::service_name(service)) + " " +
                       std::string(roce::operation_name(packet.bth.operation)),
                   service, packet, [=](PortRig& rig, Way way) {
                     rig.connection.requester->post(request);
                     rig.connection.go_on(rig.now);
                     for (uint32_t i = 0; i < answered; ++i)
                       take(rig,
                            answer(service,
                                   i == 0 ? Operation::kReadResponseFirst : Operation::kReadResponseMiddle, i,
                                   kMtu),
                            way);
                   }});
}

void add_answers(std::vector<PacketKind>& kinds, Service service) {
  using enum Operation;
  const Request send{.kind = Request::Kind::kSend, .length = 40};
  Request read{.kind = Request::Kind::kRead, .key = kKey, .address = kAddress, .length = 600};
  const Request add{.kind = Request::Kind::kFetchAdd, .key = kKey, .address = kAddress, .length = 8};
  add_answer(kinds, answer(service, kAcknowledge, 0, 0), send, 0);
  add_answer(kinds, answer(service, kAtomicAcknowledge, 0, 0), add, 0);
  add_answer(kinds, answer(service, kReadResponseFirst, 0, kMtu), read, 0);
  add_answer(kinds, answer(service, kReadResponseMiddle, 1, kMtu), read, 1);
  add_answer(kinds, answer(service, kReadResponseLast, 2, 600 - 2 * kMtu), read, 2);
  read.length = 50;
  add_answer(kinds, answer(service, kReadResponseOnly, 0, 50), read, 0);
}

void add_notification(std::vector<PacketKind>& kinds, Service to) {
  kinds.push_back({"CNP to " + std::string(roce::service_name(to)), to, congestion_notification(),
                   [](PortRig& rig, Way) { rig.connection.actions.post_receives(1); },
                   wire::Drop::kBadService});
}

}  // namespace

Packet congestion_notification() {
  Packet packet;
  packet.bth.service = Service::kCnp;
  packet.bth.operation = static_cast<Operation>(roce::kCnpOpcode & 0x1f);
  packet.bth.becn = true;
  packet.bth.destination = kOwn;
  return packet;
}

std::vector<PacketKind> packet_kinds() {
  using enum Operation;
  std::vector<PacketKind> kinds;
  for (const auto service : {Service::kRc, Service::kUc, Service::kXrc})
    add_requests(kinds, service,
                 {kSendFirst, kSendMiddle, kSendLast, kSendLastImm, kSendOnly, kSendOnlyImm, kWriteFirst,
                  kWriteMiddle, kWriteLast, kWriteLastImm, kWriteOnly, kWriteOnlyImm});
  for (const auto service : {Service::kRc, Service::kXrc}) {
    add_requests(kinds, service,
                 {kReadRequest, kCompareSwap, kFetchAdd, kSendLastInvalidate, kSendOnlyInvalidate});
    add_answers(kinds, service);
  }
  add_requests(kinds, Service::kRc, {kAtomicWrite});
  add_requests(kinds, Service::kUd, {kSendOnly, kSendOnlyImm});
  for (const auto to : {Service::kRc, Service::kUc, Service::kUd, Service::kXrc}) add_notification(kinds, to);
  return kinds;
}

const PacketKind& packet_kind(const std::string& name) {
  static const auto kKinds = packet_kinds();
  for (const auto& kind : kKinds)
    if (kind.name == name) return kind;
  throw std::logic_error("no kind of packet is called " + name);
}

}  // namespace verbena::test
