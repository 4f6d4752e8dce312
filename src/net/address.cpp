#include "net/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace verbena::net {

std::string to_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ipv4())
    ::inet_ntop(AF_INET, &address.bytes[12], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

}  // namespace verbena::net
