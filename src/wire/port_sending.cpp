// How connections' packets become bytes.
#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "roce/codec.hpp"
#include "roce/run_headers.hpp"
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
  // All headers before the first payload: they are read again before they are sent, and what was written in
  // pieces can be once it has left the processor's store buffer. Behind a payload that takes as long as
  // copying it.
  const size_t packets = memory.size() / payload_bytes;
  CHECK(packets <= net::kMaxRunPackets);
  std::array<std::array<std::byte, roce::kMostHeaderBytes>, net::kMaxRunPackets> headers;
  const size_t length = roce::emit_headers(first, 0, headers[0]);
  const auto of = [&headers, length](size_t i) { return std::span(headers[i]).first(length); };
  if (!migrated_) headers[0][1] &= ~kMigrated;
  roce::RunHeaders following(of(0), payload_bytes);
  for (size_t i = 1; i < packets; ++i) following.next(headers[i]);
  const verbs::AsAdapter as_adapter;
  for (size_t i = 0; i < packets; ++i)
    port_.transmitter_.append(route_, of(i), memory.subspan(i * payload_bytes, payload_bytes));
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
