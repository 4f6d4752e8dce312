// Groups that a socket listens to.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "net/address.hpp"

namespace verbena::net {

// On one interface. Joining twice is no error.
[[nodiscard]] base::Result<void> join(int socket, const Address& group, uint32_t interface);
void leave(int socket, const Address& group, uint32_t interface);

}  // namespace verbena::net
