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
  [[nodiscard]] uint16_t cuts_into() const { return cuts_into_; }
  // False: it never did, or can't be stopped.
  [[nodiscard]] bool stop_cutting();

 private:
  // What the kernel would have to be told beside each message.
  struct Manner {
    uint8_t traffic_class = 0;
    uint8_t hop_limit = Route{}.hop_limit;

    bool operator==(const Manner&) const = default;
  };
  // What is asked for, one message after the other.
  template <typename T>
  struct Asked {
    T last{};
    unsigned alike = 0;  // times that it was the same as the time before

    // True: so often that the socket might do it by itself.
    [[nodiscard]] bool often(const T& asked) {
      constexpr unsigned kOften = 16;
      alike = asked == last ? alike + 1 : 0;
      last = asked;
      return alike == kOften;
    }
  };
  class Message;

  void get_used_to(int fd, const Manner& asked, uint16_t segment_bytes);
  [[nodiscard]] bool cut_into(int fd, uint16_t bytes);
  [[nodiscard]] bool set_traffic_class(int fd, uint8_t traffic_class);
  [[nodiscard]] bool set_hop_limit(int fd, uint8_t hop_limit);

  base::GuardedFd fd_;
  bool ipv4_ = false;
  uint16_t port_ = 0;  // 0: there is none
  Address source_;     // what it is bound to; unspecified: to none, so each message says it
  // What is asked for again and again it does by itself: a message with nothing beside it is 0.15 us less.
  Manner habit_;
  uint16_t cuts_into_ = 0;
  Asked<Manner> manners_;
  Asked<uint16_t>
      segments_;  // of runs: lone packets don't teach it to cut, which some kernels then refuse them
};

}  // namespace verbena::net
