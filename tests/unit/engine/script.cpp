#include "script.hpp"

#include <fmt/format.h>

#include "engine/credits.hpp"
#include "roce/print.hpp"

namespace verbena::engine {

using base::Psn;
using roce::Operation;
using roce::Packet;

namespace {

std::vector<std::byte>& zeros() {
  static std::vector<std::byte> bytes(8192);
  return bytes;
}

std::string syndrome_line(uint8_t code) {
  switch (code & roce::syndrome::kKindMask) {
    case roce::syndrome::kAck:
      return credits_of(code) == kCreditsUncounted ? "" : fmt::format(" credits {}", credits_of(code));
    case roce::syndrome::kRnr:
      return fmt::format(" rnr {}", code & 0x1f);
    default:
      return fmt::format(" nak {}", code & 0x1f);
  }
}

}  // namespace

base::Instant at_us(int64_t microseconds) { return {1'000'000'000 + microseconds * 1000}; }

std::string line_of(const Packet& packet) {
  const auto& info = packet.info();
  auto line = fmt::format("{} {}", roce::operation_name(packet.bth.operation), packet.bth.psn.since(kFirst));
  if (packet.bth.service == roce::Service::kXrc) line = "XRC " + line;
  if (info.xrc_eth) line += fmt::format(" srq {:x}", packet.xrc_srq);
  if (info.request && packet.bth.ack_request) line += " ack";
  if (packet.bth.solicited) line += " solicited";
  if (info.reth) line += fmt::format(" @{:x}+{}", packet.reth.address, packet.reth.length);
  if (info.aeth) line += syndrome_line(packet.aeth.syndrome);
  if (info.atomic_ack_eth) line += fmt::format(" before {}", packet.atomic_before);
  if (info.imm) line += fmt::format(" imm {:x}", packet.imm);
  if (!packet.payload.empty()) line += fmt::format(" {}B", packet.payload.size());
  return line;
}

std::span<std::byte> ScriptSink::room(uint8_t opcode, size_t payload_bytes) {
  EXPECT_TRUE(roce::opcode_info(opcode).known);
  room_.assign(payload_bytes, std::byte{0xee});
  return room_;
}

void ScriptSink::commit(const Packet& packet) {
  EXPECT_EQ(packet.payload.data(), packet.payload.empty() ? packet.payload.data() : room_.data());
  EXPECT_EQ(packet.payload.size(), room_.size());
  last_ = packet;
  lines_.push_back(line_of(packet));
}

Packet request_packet(Operation operation, uint32_t psn, size_t payload) {
  Packet packet;
  packet.bth.operation = operation;
  packet.bth.psn = kFirst + psn;
  packet.bth.ack_request = packet.info().last;
  packet.payload = std::span(zeros()).first(payload);
  return packet;
}

Packet write_packet(Operation operation, uint32_t psn, uint32_t length, size_t payload) {
  Packet packet = request_packet(operation, psn, payload);
  packet.reth = {0x1000, 7, length};
  return packet;
}

Packet read_packet(uint32_t psn, uint64_t address, uint32_t length) {
  Packet packet = request_packet(Operation::kReadRequest, psn);
  packet.reth = {address, 7, length};
  return packet;
}

Packet add_packet(uint32_t psn, uint64_t value) {
  Packet packet = request_packet(Operation::kFetchAdd, psn);
  packet.atomic = {0x1000, 7, value, 0};
  return packet;
}

Packet ack_packet(uint32_t psn, uint8_t syndrome) {
  Packet packet;
  packet.bth.operation = Operation::kAcknowledge;
  packet.bth.psn = kFirst + psn;
  packet.aeth.syndrome = syndrome;
  return packet;
}

Packet response_packet(Operation operation, uint32_t psn, size_t payload) {
  Packet packet;
  packet.bth.operation = operation;
  packet.bth.psn = kFirst + psn;
  packet.aeth.syndrome = roce::syndrome::kNoCredits;
  packet.payload = std::span(zeros()).first(payload);
  return packet;
}

Packet xrc_packet(Packet packet, uint32_t srq) {
  packet.bth.service = roce::Service::kXrc;
  packet.xrc_srq = srq;
  return packet;
}

Packet atomic_ack_packet(uint32_t psn, uint64_t before) {
  Packet packet = response_packet(Operation::kAtomicAcknowledge, psn, 0);
  packet.atomic_before = before;
  return packet;
}

}  // namespace verbena::engine
