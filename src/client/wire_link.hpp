// The way to the network as the user wants it: with faults, captured, traced.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/fault_lane.hpp"
#include "net/link.hpp"

namespace verbena::client {

struct WishedFaults {
  net::Faults faults;
  uint64_t seed = 1;
};

// "loss=1%,duplicate=1%,reorder=1%,corrupt=0.1%,delay=10ms,jitter=2ms,seed=7", any of them; "partition".
// EINVAL with a sentence that shows the word that isn't understood.
[[nodiscard]] base::Result<WishedFaults> parse_faults(std::string_view text);

// What SO_RCVBUF is asked for, in bytes. EINVAL with a sentence.
[[nodiscard]] base::Result<int> parse_receive_buffer(std::string_view text);

// Over the slot's socket, with what VERBENA_FAULTS, VERBENA_CAPTURE, VERBENA_TRACE and VERBENA_RECEIVE_BUFFER
// ask for. Faults act on what comes in, so that each direction between two processes that have them is hit
// once.
[[nodiscard]] base::Result<std::unique_ptr<net::Link>> make_wire_link(base::UniqueFd slot_socket);

}  // namespace verbena::client
