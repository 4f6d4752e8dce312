// Why a packet changed nothing, each a counter (STYLE: a bad packet is counted, never asserted, never
// logged).
#pragma once

#include <cstdint>
#include <string_view>

namespace verbena::engine {

enum class DropReason : uint8_t {
  kNone,             // it was of use
  kDuplicate,        // of a request that was carried out already
  kReplayForgotten,  // a duplicate READ or atomic whose answer isn't kept any longer
  kOutOfOrder,       // after a gap: asked for again
  kNotReady,         // answered by RNR
  kNoRoom,           // the receiver has no room just now: not answered
  kSilence,          // nobody here who would answer
  kStaleAnswer,      // to a request that has ended
  kGhostAnswer,      // to a request never made
  kBadAnswer,        // what no answer may say
  kBadOpcode,        // not for this service
  kBrokenMessage,    // UC: part of a message whose other parts were lost
  kBadQkey,
  kTooLong,
  kRefused,  // UC: key, bounds or access don't allow it
  kCount,
};

[[nodiscard]] constexpr std::string_view name_of(DropReason reason) {
  constexpr std::string_view kNames[] = {"none",         "duplicate",  "replay_forgotten", "out_of_order",
                                         "not_ready",    "no_room",    "silence",          "stale_answer",
                                         "ghost_answer", "bad_answer", "bad_opcode",       "broken_message",
                                         "bad_qkey",     "too_long",   "refused"};
  static_assert(sizeof kNames / sizeof kNames[0] == static_cast<unsigned>(DropReason::kCount));
  return kNames[static_cast<unsigned>(reason)];
}

}  // namespace verbena::engine
