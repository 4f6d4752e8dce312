// Tests of the engine read: in this state, receive this, expect exactly these packets, nothing more. Packets
// are lines, as "WriteFirst 0 @1000+600 256B"; PSNs count from the connection's first one, which lies just
// before the end of the numbers, so that every test goes round.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "engine/packet_sink.hpp"
#include "engine/request.hpp"
#include "engine/responder_actions.hpp"
#include "roce/packet.hpp"

namespace verbena::engine {

inline constexpr base::Psn kFirst{0xfffffe};
inline constexpr uint32_t kMtu = 256;
using Lines = std::vector<std::string>;

[[nodiscard]] std::string line_of(const roce::Packet& packet);
[[nodiscard]] base::Instant at_us(int64_t microseconds);

// Keeps what is sent until it is looked at.
class ScriptSink final : public PacketSink {
 public:
  [[nodiscard]] bool ready() override { return ready_; }
  [[nodiscard]] std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) override;
  void commit(const roce::Packet& packet) override;
  void set_ready(bool ready) { ready_ = ready; }
  [[nodiscard]] Lines take() { return std::exchange(lines_, {}); }
  [[nodiscard]] const std::vector<std::byte>& last_payload() const { return room_; }
  [[nodiscard]] const roce::Packet& last() const { return last_; }

 private:
  bool ready_ = true;
  std::vector<std::byte> room_;
  roce::Packet last_;
  Lines lines_;
};

// Packets as they come from the other side; `psn` counts from kFirst.
[[nodiscard]] roce::Packet request_packet(roce::Operation operation, uint32_t psn, size_t payload = 0);
[[nodiscard]] roce::Packet write_packet(roce::Operation operation, uint32_t psn, uint32_t length,
                                        size_t payload);
[[nodiscard]] roce::Packet read_packet(uint32_t psn, uint64_t address, uint32_t length);
[[nodiscard]] roce::Packet add_packet(uint32_t psn, uint64_t value);
[[nodiscard]] roce::Packet ack_packet(uint32_t psn, uint8_t syndrome = roce::syndrome::kNoCredits);
[[nodiscard]] roce::Packet response_packet(roce::Operation operation, uint32_t psn, size_t payload);
[[nodiscard]] roce::Packet atomic_ack_packet(uint32_t psn, uint64_t before);
// The same, of XRC.
[[nodiscard]] roce::Packet xrc_packet(roce::Packet packet, uint32_t srq = 0);

}  // namespace verbena::engine
