// Where the engine puts packets that leave. Whoever implements it adds addresses and ICRC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "roce/packet.hpp"

namespace verbena::engine {

// Fewer packets than these go one by one.
inline constexpr uint32_t kWorthARun = 4;

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // True: a packet can be taken now.
  [[nodiscard]] virtual bool ready() = 0;
  // Room for the payload of the next packet, which has this opcode.
  [[nodiscard]] virtual std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) = 0;
  // The packet whose payload lies in the room that was given last. Without this call it is never sent.
  virtual void commit(const roce::Packet& packet) = 0;

  // How many packets of that opcode, with so much payload each, had better be committed together.
  [[nodiscard]] virtual size_t run_room(uint8_t opcode, size_t payload_bytes) {
    (void)opcode, (void)payload_bytes;
    return 0;
  }
  // A run of packets (roce::next_in_run), each with the next `payload_bytes` of `memory`, as many as it
  // holds; payloads without padding. Others may change the memory meanwhile.
  virtual void commit_run(const roce::Packet& first, std::span<const std::byte> memory,
                          size_t payload_bytes) {
    roce::Packet packet = first;
    for (; !memory.empty(); memory = memory.subspan(payload_bytes)) {
      const auto space = room(packet.bth.opcode(), payload_bytes);
      std::memcpy(space.data(), memory.data(), payload_bytes);
      packet.payload = space;
      commit(packet);
      roce::next_in_run(packet, payload_bytes);
    }
  }
};

}  // namespace verbena::engine
