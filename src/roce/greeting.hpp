// "Are you Verbena?": a vendor's MAD to a host's QP1 and the answer of its agent. Whoever answers takes
// segmented sends (DESIGN 2.4); all others ignore it or
// send it back with a status.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "roce/packet.hpp"

namespace verbena::roce {

struct Greeting {
  bool answer = false;
  base::Qpn from;  // to whom an answer goes
  uint64_t transaction = 0;
  bool operator==(const Greeting&) const = default;
};

inline constexpr size_t kGreetingBytes = 12 + 8 + 256;  // BTH, DETH, MAD; the ICRC comes after

void emit_greeting(const Greeting& greeting, base::Qpn to, std::span<std::byte, kGreetingBytes> into);
// Nothing: it is some other packet.
[[nodiscard]] std::optional<Greeting> parse_greeting(const Packet& packet);

}  // namespace verbena::roce
