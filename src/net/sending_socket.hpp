// A socket that packets leave by, and what it has got used to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.hpp"
#include "net/address.hpp"
#include "net/link.hpp"

namespace verbena::net {

// Never connected: the kernel gives its plain datagrams the IPv4 ID 0 then (DESIGN 2.4).
class SendingSocket {
 public:
  SendingSocket() = default;  // none
  // Of the route's family, for recognised or for foreign peers. Bound to `source`, or, if that is
  // unspecified, to none. It is none where the kernel grants no such socket.
  SendingSocket(const Route& route, const Address& source, int buffer_bytes);

  explicit operator bool() const { return port_ != 0; }
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] const Address& source() const { return source_; }

  // One datagram, or, where they aren't 0, packets of `segment_bytes`. 0, or why not.
  [[nodiscard]] int send(const Route& route, std::span<const std::byte> bytes, uint16_t segment_bytes);
  // What it cuts longer messages into without being told; 0: it doesn't.
  [[nodiscard]] uint16_t cuts_into() const { return habit_.segment_bytes; }
  // False: it never did, or can't be stopped.
  [[nodiscard]] bool stop_cutting();

 private:
  // What the kernel would have to be told with each message.
  struct Manner {
    uint16_t segment_bytes = 0;
    uint8_t traffic_class = 0;
    uint8_t hop_limit = Route{}.hop_limit;

    bool operator==(const Manner&) const = default;
  };
  class Message;

  void get_used_to(int fd, const Manner& asked);
  [[nodiscard]] bool cut_into(int fd, uint16_t bytes);
  [[nodiscard]] bool set_traffic_class(int fd, uint8_t traffic_class);
  [[nodiscard]] bool set_hop_limit(int fd, uint8_t hop_limit);

  base::GuardedFd fd_;
  bool ipv4_ = false;
  uint16_t port_ = 0;  // 0: there is none
  Address source_;     // what it is bound to; unspecified: to none, so each message says it
  // What is asked for again and again it does by itself: a message with nothing beside it is 0.15 us less.
  Manner habit_;
  Manner last_;         // what was asked for last
  unsigned alike_ = 0;  // messages that asked for the same as the one before, one behind the other
};

}  // namespace verbena::net
