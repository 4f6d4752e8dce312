// One field of a packet changed, for the tests of what comes of it.
#pragma once

#include <functional>

#include "packet_kinds.hpp"

namespace verbena::test {

using Change = std::function<void(roce::Packet&)>;
inline constexpr Way kWays[] = {Way::kRecognised, Way::kIpv6, Way::kForeign};

// A field of one kind of packet, and what comes of it.
struct OneField {
  const char* kind;
  const char* name;
  Change change;
  const char* reason;  // "none" where the answer says it
  int answer = -1;     // syndrome; -1: none is sent
};

inline Change psn(int32_t by) {
  return [by](roce::Packet& packet) { packet.bth.psn = packet.bth.psn + static_cast<uint32_t>(by); };
}
inline Change reth_key() {
  return [](roce::Packet& packet) { packet.reth.key ^= 0x100; };
}
inline Change reth_address(int64_t by) {
  return [by](roce::Packet& packet) { packet.reth.address += static_cast<uint64_t>(by); };
}
inline Change reth_length(uint32_t length) {
  return [length](roce::Packet& packet) { packet.reth.length = length; };
}
inline Change invalidate_key() {
  return [](roce::Packet& packet) { packet.invalidate_key ^= 1; };
}
inline Change shared_queue(uint32_t number) {
  return [number](roce::Packet& packet) { packet.xrc_srq = number; };
}
inline Change operation(roce::Operation to) {
  return [to](roce::Packet& packet) { packet.bth.operation = to; };
}
inline Change cut(size_t bytes) {
  return
      [bytes](roce::Packet& packet) { packet.payload = packet.payload.first(packet.payload.size() - bytes); };
}

}  // namespace verbena::test
