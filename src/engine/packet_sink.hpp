// Where the engine puts packets that leave. Whoever implements it adds addresses and ICRC.
#pragma once

#include <cstddef>
#include <span>

#include "roce/packet.hpp"

namespace verbena::engine {

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // True: a packet can be taken now.
  [[nodiscard]] virtual bool ready() = 0;
  // Room for the payload of the next packet, which has this opcode.
  [[nodiscard]] virtual std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) = 0;
  // The packet whose payload lies in the room that was given last. Without this call it is never sent.
  virtual void commit(const roce::Packet& packet) = 0;
};

}  // namespace verbena::engine
