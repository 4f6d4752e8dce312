// How the manager's parts put messages together; for them only.
#pragma once

#include <algorithm>
#include <span>

#include "cm/codec.hpp"
#include "cm/manager.hpp"

namespace verbena::cm {

template <typename Body>
void Manager::send(const Connection& connection, const Body& body) {
  mads_.push_back({connection.way, emit({connection.transaction, body})});
}

template <typename Body>
void Manager::send_until_answered(base::Instant now, Connection& connection, const Body& body) {
  connection.message = emit({connection.transaction, body});
  connection.repeats = 0;
  repeat(now, connection);
}

// What came, for the program: always as long as the message has room for, as nobody says how much is used.
inline void set_private(ipc::CmParameters& parameters, std::span<const std::byte> data) {
  static_assert(sizeof parameters.private_data > 255 && sizeof parameters.private_length == 1);
  parameters.private_length = static_cast<uint8_t>(std::min<size_t>(data.size(), 255));
  std::memcpy(parameters.private_data, data.data(), parameters.private_length);
}

// What the program wants to say. EINVAL: there is no room for so much.
[[nodiscard]] base::Result<void> put_private(const uint8_t* data, size_t length, std::span<std::byte> into);

}  // namespace verbena::cm
