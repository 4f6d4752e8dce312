#include "golden_sequences.hpp"

#include <array>
#include <map>
#include <set>

#include "engine_input.hpp"
#include "roce/codec.hpp"
#include "support/pcap.hpp"

namespace verbena::fuzz {
namespace {

Step step_of(const roce::Packet& packet, int8_t psn) {
  const auto& info = packet.info();
  Step step;
  step.opcode = packet.bth.opcode();
  step.psn = psn;
  step.flags = static_cast<uint8_t>((packet.bth.solicited ? Step::kSolicited : 0) |
                                    (packet.bth.ack_request ? Step::kAskAck : 0));
  step.payload = static_cast<uint16_t>(packet.payload.size());
  if (info.reth) step.length = static_cast<uint16_t>(packet.reth.length);
  if (info.aeth) step.syndrome = packet.aeth.syndrome;
  step.value = 1;
  return step;
}

Step plain(Step::Kind kind, uint8_t value) {
  Step step;
  step.kind = static_cast<uint8_t>(kind);
  step.value = value;
  return step;
}

// What the requester would have posted to send this packet.
Step post_of(const roce::Packet& packet) {
  using enum roce::Operation;
  Step step = plain(Step::Kind::kPost, 1);
  const auto& info = packet.info();
  const auto operation = packet.bth.operation;
  step.opcode = info.send                   ? 0
                : info.write                ? 1
                : operation == kReadRequest ? 2
                : operation == kCompareSwap ? 3
                                            : 4;
  step.length = static_cast<uint16_t>(info.send ? packet.payload.size() : packet.reth.length);
  return step;
}

struct Sequences {
  std::vector<uint8_t> requester{0x82};
  std::vector<uint8_t> responder{0x32};
  uint32_t end = 0;  // one past the highest PSN that was asked for
};

void add(Sequences& into, const roce::Packet& packet) {
  const auto& info = packet.info();
  if (info.request) {
    append(into.responder, plain(Step::Kind::kReceives, 1));
    append(into.responder, step_of(packet, 0));
    append(into.responder, plain(Step::Kind::kPost, 8));
    if (info.first) append(into.requester, post_of(packet));
    append(into.requester, plain(Step::Kind::kReceives, 8));
    const uint32_t answers =
        packet.bth.operation == roce::Operation::kReadRequest ? (packet.reth.length + 1023) / 1024 : 1;
    into.end = packet.bth.psn.value + answers;
  } else {
    append(into.requester, step_of(packet, static_cast<int8_t>(packet.bth.psn.value - into.end)));
    append(into.requester, plain(Step::Kind::kTime, 0));
  }
}

}  // namespace

std::vector<Seed> golden_sequences() {
  std::map<std::string, Sequences> files;
  std::map<std::string, roce::Service> services;
  for (const auto& captured : test::golden_packets()) {
    const auto packet = roce::parse(captured.transport());
    if (!packet || packet->bth.destination.value < 2) continue;
    const auto file = captured.where.substr(0, captured.where.find('.'));
    services[file] = packet->bth.service;
    add(files[file], *packet);
  }
  std::vector<Seed> seeds;
  for (const auto& [file, sequences] : files) {
    switch (services[file]) {
      case roce::Service::kRc:
        seeds.push_back({"rc_requester", file, sequences.requester});
        seeds.push_back({"rc_responder", file, sequences.responder});
        break;
      case roce::Service::kUc:
        seeds.push_back({"uc_responder", file, sequences.responder});
        break;
      default:
        seeds.push_back({"ud", file, sequences.responder});
        break;
    }
  }
  return seeds;
}

}  // namespace verbena::fuzz
