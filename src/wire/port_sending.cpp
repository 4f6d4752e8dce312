// How connections' packets become bytes.
#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "roce/codec.hpp"
#include "verbs/own_memory.hpp"
#include "wire/port.hpp"

namespace verbena::wire {
namespace {

constexpr std::byte kMigrated{0x40};  // in the BTH's second byte, IBA 9.2.3; packets have it set

}  // namespace

std::span<std::byte> Port::Sending::room(uint8_t opcode, size_t payload_bytes) {
  const size_t headers = roce::opcode_info(opcode).header_bytes;
  space_ = port_.transmitter_.space(headers + ((payload_bytes + 3) & ~size_t{3}) + roce::kIcrcBytes);
  return space_.subspan(headers, payload_bytes);
}

void Port::Sending::commit(const roce::Packet& packet) {
  const size_t payload = packet.payload.size();
  const size_t pad = -payload & 3;
  const size_t headers = roce::emit_headers(packet, static_cast<unsigned>(pad), space_);
  if (!migrated_) space_[1] &= ~kMigrated;
  std::ranges::fill(space_.subspan(headers + payload, pad), std::byte{0});
  const size_t bytes = headers + payload + pad + roce::kIcrcBytes;
  port_.transmitter_.commit(route_, bytes);
  if (!paced_) return;
  if (const auto number = port_.pacing_.sent(route_, bytes, now_))
    port_.send_greeting({.from = port_.own_number(), .transaction = *number},
                        base::Qpn::make(packet.bth.destination.slot(), 0), route_);
}

size_t Port::Sending::run_room(uint8_t opcode, size_t payload_bytes) {
  if (paced_) return 0;
  return port_.transmitter_.room_for(
      route_, roce::opcode_info(opcode).header_bytes + payload_bytes + roce::kIcrcBytes);
}

void Port::Sending::commit_run(const roce::Packet& first, std::span<const std::byte> memory,
                               size_t payload_bytes) {
  // All headers before the first payload. What was written in pieces is read as a whole only when it has left
  // the processor's store buffer, and behind a payload that takes as long as copying it.
  const size_t packets = memory.size() / payload_bytes;
  std::array<std::byte, net::kMaxRunPackets * roce::kMostHeaderBytes> space;
  const size_t length = roce::emit_headers(first, 0, space);
  CHECK(packets <= net::kMaxRunPackets && length <= roce::kMostHeaderBytes);
  if (!migrated_) space[1] &= ~kMigrated;
  const auto headers = [&space, length](size_t i) { return std::span(space).subspan(i * length, length); };
  for (size_t i = 1; i < packets; ++i) {
    std::ranges::copy(headers(i - 1), headers(i).begin());
    roce::step_headers(headers(i), payload_bytes);
  }
  const verbs::AsAdapter as_adapter;
  for (size_t i = 0; i < packets; ++i)
    port_.transmitter_.append(route_, headers(i), memory.subspan(i * payload_bytes, payload_bytes));
}

void Port::Sending::carry(const roce::Packet& acknowledgement) {
  const auto space = port_.transmitter_.rider_space();
  const size_t headers = roce::emit_headers(acknowledgement, 0, space);
  if (!migrated_) space[1] &= ~kMigrated;
  port_.transmitter_.carry(route_, headers + roce::kIcrcBytes);
}

void Port::Sending::await_turn(Connection& connection) {
  if (ready()) return;
  port_.pacing_.wait(route_, static_cast<uint16_t>(connection.own().value));
  port_.schedule(connection, port_.pacing_.opens_at(route_), now_);
}

}  // namespace verbena::wire
