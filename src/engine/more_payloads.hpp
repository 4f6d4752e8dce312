// What follows a packet that was taken: others of its run (roce::next_in_run).
#pragma once

#include <cstddef>
#include <span>

#include "roce/packet.hpp"

namespace verbena::engine {

class MorePayloads {
 public:
  // At most so many.
  [[nodiscard]] virtual size_t most() const = 0;
  // The next one's, whose ICRC is right. Without data(): there is none like that. Whoever asks places it, or
  // takes what has no payload for taken.
  [[nodiscard]] virtual std::span<const std::byte> next() = 0;

 protected:
  ~MorePayloads() = default;
};

// Whether more of its kind may be taken together with it: it has no consequence but that its bytes have come.
// So it is in the middle of a message, or a WRITE by itself, or one of a pair of answers, or asks for such.
[[nodiscard]] inline bool may_be_followed(const roce::Packet& packet) {
  using enum roce::Operation;
  const auto& info = packet.info();
  const auto operation = packet.bth.operation;
  if (packet.bth.service == roce::Service::kRc && operation == kReadRequest) return true;
  if (packet.payload.empty() || packet.bth.pad != 0 || packet.bth.ack_request) return false;
  if (!info.first && !info.last) return true;
  return packet.bth.service == roce::Service::kRc &&
         (operation == kWriteOnly || operation == kReadResponseFirst || operation == kReadResponseLast);
}

}  // namespace verbena::engine
