// What an AETH says of a request at fault.
#pragma once

#include "engine/responder_actions.hpp"
#include "roce/packet.hpp"

namespace verbena::engine {

[[nodiscard]] inline uint8_t syndrome_of(Verdict verdict) {
  switch (nak_of(verdict)) {
    case Nak::kRemoteAccess:
      return roce::syndrome::kRemoteAccess;
    case Nak::kInvalidRequest:
      return roce::syndrome::kInvalidRequest;
    default:
      return roce::syndrome::kOperational;
  }
}

}  // namespace verbena::engine
