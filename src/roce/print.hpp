// A packet in one line, for people: traces, failing tests, the capture tool.
#pragma once

#include <string>
#include <string_view>

#include "roce/codec.hpp"
#include "roce/packet.hpp"

namespace verbena::roce {

// As in "RC SendOnly qp 0x010203 psn 17 ack 24 B": service, operation, destination, PSN, `ack` where one is
// asked for, what the headers say, and the payload's length.
[[nodiscard]] std::string to_line(const Packet& packet);

// "RNR timer 14", "NAK remote access", ...
[[nodiscard]] std::string syndrome_text(uint8_t syndrome);

[[nodiscard]] std::string_view operation_name(Operation operation);
[[nodiscard]] std::string_view service_name(Service service);
[[nodiscard]] std::string_view parse_error_name(ParseError error);  // a counter's name: "bad_opcode"

}  // namespace verbena::roce
