// A capture of the kernel's rxe done again by our engine: the same operations with the same numbers and keys,
// each packet when the capture has it, so that what we would have sent can be laid beside what rxe sent.
#pragma once

#include <string>
#include <vector>

#include "engine/request.hpp"
#include "roce/packet.hpp"
#include "support/engine_model.hpp"
#include "support/pcap.hpp"

namespace verbena::test {

// What the capture can't tell: why the responder refused.
enum class Fault : uint8_t { kNone, kBadKey, kBadAddress, kShortReceive };

struct Pairing {
  std::string where;  // file and number of rxe's packet
  CapturedPacket rxe;
  bool sent = false;  // false: we have nothing to send there
  KeptPacket ours;
};

struct Replay {
  std::vector<Pairing> packets;
  std::vector<std::string> refused;     // packets of rxe's that our engine had no use for
  std::vector<std::string> leftover;    // what we would have sent besides
  std::vector<engine::Request> posted;  // the operations, as reconstructed, of all requesters
  std::vector<engine::RequestStatus> ended;
  size_t receives_completed = 0;
  bool received_as_sent = true;  // what completed holds the bytes of the capture
};

[[nodiscard]] Replay replay(const std::string& file, Fault fault);

}  // namespace verbena::test
