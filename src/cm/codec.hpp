// Messages to MADs and back. Reserved bits are sent as zero and not looked at.
#pragma once

#include <optional>
#include <span>

#include "cm/messages.hpp"

namespace verbena::cm {

// Nothing: not a MAD, not the connection manager's, or a message that we don't know.
[[nodiscard]] std::optional<Message> parse(std::span<const std::byte> mad);
[[nodiscard]] MadBytes emit(const Message& message);

}  // namespace verbena::cm
