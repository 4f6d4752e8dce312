// Names to addresses, as for TCP.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

namespace examples {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

/// Where a server can be reached: its name or address, and its port.
[[nodiscard]] AddressList address_of_server(const std::string& server, const std::string& port);
/// Where a server listens; everywhere if `address` is empty.
[[nodiscard]] AddressList address_to_listen(const std::string& address, const std::string& port);

}  // namespace examples
