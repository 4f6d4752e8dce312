#include "rc-example/card.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "common/address.hpp"

namespace examples {
namespace {

/// All numbers big-endian; no gaps.
struct __attribute__((packed)) WireCard {
  uint32_t qpn;
  uint32_t psn;
  uint16_t lid;
  uint8_t gid[16];
  uint8_t mtu;
  std::byte terms[16];
  std::byte regions[24];
};

WireCard to_wire(const Card& card) {
  WireCard wire = {};
  wire.qpn = htobe32(card.qpn);
  wire.psn = htobe32(card.psn);
  wire.lid = htobe16(card.lid);
  wire.mtu = card.mtu;
  std::memcpy(wire.gid, card.gid.raw, sizeof wire.gid);
  std::memcpy(wire.terms, card.terms.to_wire().data(), sizeof wire.terms);
  std::memcpy(wire.regions, card.regions.to_wire().data(), sizeof wire.regions);
  return wire;
}

Card from_wire(const WireCard& wire) {
  Card card = {};
  card.qpn = be32toh(wire.qpn);
  card.psn = be32toh(wire.psn);
  card.lid = be16toh(wire.lid);
  card.mtu = wire.mtu;
  std::memcpy(card.gid.raw, wire.gid, sizeof wire.gid);
  card.terms = *Terms::from_wire(wire.terms);
  card.regions = *Regions::from_wire(wire.regions);
  return card;
}

}  // namespace

SideChannel::~SideChannel() { ::close(fd_); }

int SideChannel::connect(const std::string& server, const std::string& port) {
  constexpr int kAttempts = 20;
  const auto address = address_of_server(server, port);
  for (int attempt = 1;; ++attempt) {
    const int fd = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) throw Failure("socket", errno);
    if (::connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    const int error = errno;
    ::close(fd);
    if (error != ECONNREFUSED || attempt == kAttempts) throw Failure("connect to " + server, error);
    ::usleep(100'000);
  }
}

void SideChannel::send_all(const void* bytes, std::size_t length) {
  if (::send(fd_, bytes, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length))
    throw Failure("the side channel broke: send", errno);
}

void SideChannel::receive_all(void* bytes, std::size_t length) {
  const ssize_t got = ::recv(fd_, bytes, length, MSG_WAITALL);
  if (got < 0) throw Failure("the side channel broke: recv", errno);
  if (got != static_cast<ssize_t>(length)) throw Failure("the peer closed the side channel");
}

void SideChannel::send(const Card& card) {
  const WireCard wire = to_wire(card);
  send_all(&wire, sizeof wire);
}

Card SideChannel::receive() {
  WireCard wire;
  receive_all(&wire, sizeof wire);
  return from_wire(wire);
}

void SideChannel::meet() {
  char byte = '!';
  send_all(&byte, 1);
  receive_all(&byte, 1);
}

SideListener::SideListener(const std::string& address, const std::string& port) : fd_(-1) {
  const auto where = address_to_listen(address, port);
  fd_ = ::socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd_ < 0 || ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd_, where->ai_addr, where->ai_addrlen) != 0 || ::listen(fd_, 64) != 0) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    throw Failure("listening on port " + port, error);
  }
}

SideListener::~SideListener() { ::close(fd_); }

int SideListener::port() const {
  sockaddr_storage bound = {};
  socklen_t length = sizeof bound;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    throw Failure("getsockname", errno);
  // The port is at the same place in both families' addresses.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

int SideListener::accept() {
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) throw Failure("accept", errno);
  return fd;
}

}  // namespace examples
