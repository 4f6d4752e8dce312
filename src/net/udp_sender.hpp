// The sockets that packets leave by.
#pragma once

#include <cstdint>
#include <vector>

#include "net/counter.hpp"
#include "net/link.hpp"
#include "net/sending_socket.hpp"

namespace verbena::net {

struct UdpSendCounters {
  Counter packets;         // that the kernel took
  Counter bytes;           // of them, BTH to ICRC
  Counter segmented_runs;  // that the kernel took as one
  Counter cut_by_socket;   // of them: nothing had to be told beside them
  Counter split_runs;      // that it wouldn't segment, so they were sent packet by packet
  // Runs that were not sent, or not to their end, and why.
  Counter no_room;      // a full socket buffer or device queue
  Counter too_long;     // for the MTU of the way
  Counter unreachable;  // no route, no such interface, or a source address that isn't this host's
  Counter forbidden;    // by a packet filter
  Counter closed;       // the program closed the socket
  Counter no_socket;    // none could be made
  Counter failed;       // anything else
};

// Sockets by family and, for recognised peers, destination slot: a receiving kernel may merge packets of one
// flow and steers what it merged once, so one flow must not have two destinations. Foreign IPv4 peers get
// checksum 0, which is never merged, so some share a socket.
class UdpSender {
 public:
  explicit UdpSender(int buffer_bytes);

  bool send(const Run& run);
  [[nodiscard]] uint16_t source_port(const Route& route) { return socket_for(route).port(); }
  [[nodiscard]] const UdpSendCounters& counters() const { return counters_; }

 private:
  // One for the first source that comes along, bound to it, so that messages needn't say it: 0.2 us less
  // each. It sends from no other, where its port may be somebody else's; one bound to none serves those.
  struct Place {
    SendingSocket first;
    SendingSocket others;
  };

  SendingSocket& socket_for(const Route& route);
  [[nodiscard]] int try_to_send(SendingSocket& socket, const Run& run);
  [[nodiscard]] int send_each(SendingSocket& socket, const Run& run);
  void count_failure(int error);

  int buffer_bytes_;
  std::vector<Place> places_;
  UdpSendCounters counters_;
};

}  // namespace verbena::net
