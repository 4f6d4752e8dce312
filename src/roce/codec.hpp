// Packets to bytes and back. The bytes are the UDP payload without the ICRC, which icrc.hpp adds and checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "roce/packet.hpp"

namespace verbena::roce {

// Why bytes aren't a packet; each is a counter.
enum class ParseError : uint8_t { kTooShort, kBadVersion, kBadOpcode, kBadPad, kBadLength };

// `transport` is BTH to padding. The payload of the answer lies in it.
[[nodiscard]] std::expected<Packet, ParseError> parse(std::span<const std::byte> transport);

// Headers as the opcode says; the caller puts payload and `pad` bytes of padding behind them. `into` has at
// least info().header_bytes; how many were written.
size_t emit_headers(const Packet& packet, unsigned pad, std::span<std::byte> into);

// Headers, payload and padding (bth.pad is set from the payload's length); how many bytes were written, 0:
// `into` is too short.
size_t emit(const Packet& packet, std::span<std::byte> into);

}  // namespace verbena::roce
