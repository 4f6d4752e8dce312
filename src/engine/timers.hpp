// The times that queue pair attributes and NAKs encode.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.hpp"

namespace verbena::engine {

namespace detail {
// In units of 10 us, from IBA's encoding of the RNR NAK timer field (9.7.5.2).
inline constexpr std::array<uint32_t, 32> kRnrTimers{
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
}  // namespace detail

// An RNR retry count that stands for no limit.
inline constexpr unsigned kEndlessRnrRetries = 7;

// The wait an RNR NAK asks for. Only the field's 5 bits count, so any byte off the wire will do.
[[nodiscard]] constexpr base::Duration rnr_timer(uint8_t code) {
  return base::Duration(int64_t{detail::kRnrTimers[code & 31]} * 10'000);
}

// The local ACK timeout: 4.096 us * 2^code. Zero: none, the requester waits for ever. 5 bits count.
[[nodiscard]] constexpr base::Duration ack_timeout(uint8_t code) {
  return base::Duration((code & 31) == 0 ? 0 : int64_t{4096} << (code & 31));
}

}  // namespace verbena::engine
