// A slot's socket of the steered group: where packets come in.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/counter.hpp"
#include "net/link.hpp"

namespace verbena::net {

struct UdpReceiveCounters {
  Counter packets;
  Counter bytes;         // of them, BTH to ICRC
  Counter merged;        // receives that held several packets
  Counter kernel_drops;  // what the kernel threw away, the buffer being full: packets, or merged ones as one
  Counter truncated;     // longer than any datagram; thrown away
  Counter no_destination;        // the kernel didn't say to which address it was sent; thrown away
  Counter closed;                // calls that found that the program had closed the socket
  Counter failed;                // calls that failed otherwise
  Counter receive_buffer_bytes;  // not a count: what the kernel granted, in its own reckoning
};

// Memory that is taken once.
class Pages {
 public:
  explicit Pages(size_t bytes);
  Pages(const Pages&) = delete;
  ~Pages();
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;  // null: there was none
  size_t bytes_;
};

class UdpReceiver {
 public:
  // Takes the socket and sets on it what receiving needs.
  UdpReceiver(base::UniqueFd socket, int buffer_bytes);
  UdpReceiver(const UdpReceiver&) = delete;  // its headers point into itself

  // What can't work: no memory, or a descriptor that isn't a UDP socket.
  [[nodiscard]] base::Result<void> usable() const;

  size_t receive(Sink& sink, size_t budget);
  void tell_hops();
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const UdpReceiveCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBatch = 8;
  static constexpr unsigned kCrowd = 4;           // datagrams, one at each look
  static constexpr size_t kBufferBytes = 65'536;  // more than any datagram, merged ones included
  static constexpr size_t kControlBytes = 256;

  void set_options(int buffer_bytes);
  size_t hand_over(mmsghdr& message, Sink& sink);

  base::GuardedFd socket_;
  Pages buffers_;
  size_t batch_ = 1;   // messages that the next call asks for
  unsigned lone_ = 0;  // that came by themselves since the socket was last empty
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> parts_{};
  std::array<sockaddr_in6, kBatch> senders_{};
  alignas(cmsghdr) std::array<std::array<std::byte, kControlBytes>, kBatch> controls_{};
  uint32_t drops_seen_ = 0;  // the kernel counts from the socket's making, which may have had other owners
  UdpReceiveCounters counters_;
};

}  // namespace verbena::net
