// Calls and answers on a pipe: their length, then their bytes.
#pragma once

#include <optional>

#include "stage.hpp"

namespace verbena::rc {

[[nodiscard]] bool send_bytes(int fd, const Bytes& bytes);
// Nothing: the other end closed it, or it said nothing for so long (-1: for ever).
[[nodiscard]] std::optional<Bytes> receive_bytes(int fd, int milliseconds);

}  // namespace verbena::rc
