// Why a packet that came in changed nothing: each reason a counter.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/drop_reason.hpp"
#include "net/counter.hpp"
#include "roce/codec.hpp"

namespace verbena::wire {

// The engine's reasons, then those of the steps before it.
enum class Drop : uint8_t {
  kNone = 0,
  kRunt = static_cast<uint8_t>(engine::DropReason::kCount),  // shorter than any packet
  kStray,         // for another process: the kernel steered it wrongly
  kNoConnection,  // no such queue pair, or it isn't connected
  kWrongAddress,  // from or to an address that the connection doesn't have
  kBadIcrc,
  kNatRewritten,  // the ICRC fits the address that was announced: something on the way changed it
  kBadPkey,
  kBadService,  // of another transport service than the queue pair's
  kTooShort,    // these follow roce::ParseError
  kBadVersion,
  kUnknownOpcode,
  kBadPad,
  kBadLength,
  kCount,
};

[[nodiscard]] constexpr Drop drop_of(engine::DropReason reason) { return static_cast<Drop>(reason); }
[[nodiscard]] constexpr Drop drop_of(roce::ParseError error) {
  return static_cast<Drop>(static_cast<uint8_t>(Drop::kTooShort) + static_cast<uint8_t>(error));
}
static_assert(drop_of(roce::ParseError::kBadLength) == Drop::kBadLength);

[[nodiscard]] constexpr std::string_view name_of(Drop drop) {
  constexpr std::string_view kNames[] = {
      "runt",        "stray",     "no_connection", "wrong_address",  "bad_icrc", "nat_rewritten", "bad_pkey",
      "bad_service", "too_short", "bad_version",   "unknown_opcode", "bad_pad",  "bad_length"};
  constexpr auto kFirst = static_cast<unsigned>(Drop::kRunt);
  static_assert(sizeof kNames / sizeof kNames[0] == static_cast<unsigned>(Drop::kCount) - kFirst);
  const auto number = static_cast<unsigned>(drop);
  return number < kFirst ? engine::name_of(static_cast<engine::DropReason>(drop)) : kNames[number - kFirst];
}

using DropCounters = std::array<net::Counter, static_cast<size_t>(Drop::kCount)>;

}  // namespace verbena::wire
