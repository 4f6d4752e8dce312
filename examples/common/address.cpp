#include "common/address.hpp"

#include "common/trace.hpp"

namespace examples {
namespace {

AddressList look_up(const std::string& name, const std::string& port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.empty() ? nullptr : name.c_str(), port.c_str(), &hints, &list);
  if (error != 0) throw Failure(fmt::format("getaddrinfo {} port {}: {}", name, port, ::gai_strerror(error)));
  return AddressList(list);
}

}  // namespace

AddressList address_of_server(const std::string& server, const std::string& port) {
  return look_up(server, port, 0);
}

AddressList address_to_listen(const std::string& address, const std::string& port) {
  return look_up(address, port, AI_PASSIVE);
}

}  // namespace examples
