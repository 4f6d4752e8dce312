// How messages lie in packets: what all services share.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/request.hpp"
#include "roce/packet.hpp"

namespace verbena::engine {

inline constexpr uint32_t kLongestMessage = 1u << 31;  // IBA 9.7.4.1.1
// A longer WRITE is no faster in packets of one length, for its first one ends few runs (adr/0019). Pairs of
// a READ that follow each other are one of those which are granted, up to so many bytes.
inline constexpr uint32_t kLongestEven = 256 * 1024;

[[nodiscard]] constexpr uint32_t packets_for(uint64_t length, uint32_t mtu) {
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu - 1) / mtu);
}

// Of the packet of a SEND or WRITE that is first or last or both or neither.
[[nodiscard]] constexpr roce::Operation operation_for(const Request& request, bool first, bool last) {
  using enum roce::Operation;
  const bool send = request.kind == Request::Kind::kSend;
  if (first && last) {
    if (send && request.invalidates) return kSendOnlyInvalidate;
    if (request.has_imm) return send ? kSendOnlyImm : kWriteOnlyImm;
    return send ? kSendOnly : kWriteOnly;
  }
  if (first) return send ? kSendFirst : kWriteFirst;
  if (!last) return send ? kSendMiddle : kWriteMiddle;
  if (send && request.invalidates) return kSendLastInvalidate;
  if (request.has_imm) return send ? kSendLastImm : kWriteLastImm;
  return send ? kSendLast : kWriteLast;
}

// IBA 9.7.4.1.2 and 9.8.2.1.2: full packets, but the last, which isn't empty unless it is the only one.
[[nodiscard]] inline bool length_fits(const roce::Packet& packet, uint32_t mtu) {
  const auto& info = packet.info();
  const size_t size = packet.payload.size();
  if (!info.last) return size == mtu;
  return size <= mtu && (info.first || size > 0);
}

// As the receiver's completion tells it; `kind` and `length` are for the caller to know.
[[nodiscard]] inline Arrival arrival_of(const roce::Packet& packet) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  // The completion holds the immediate in network order, whatever this machine's is.
  if (packet.info().ieth)
    return {.solicited = packet.bth.solicited, .imm = packet.invalidate_key, .invalidates = true};
  return {
      .has_imm = packet.info().imm, .solicited = packet.bth.solicited, .imm = __builtin_bswap32(packet.imm)};
}

[[nodiscard]] inline iovec bytes_of(std::span<const std::byte> payload) {
  return {const_cast<std::byte*>(payload.data()), payload.size()};
}

}  // namespace verbena::engine
