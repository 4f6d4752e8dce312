// A switch with a line to and a line from each host, on which datagrams are lost, late, doubled and damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "roce/icrc.hpp"
#include "sim/event_queue.hpp"
#include "sim/journal.hpp"
#include "sim/link.hpp"
#include "sim/random.hpp"

namespace verbena::sim {

using HostId = uint32_t;

struct Datagram {
  HostId from = 0;
  HostId to = 0;
  std::vector<std::byte> bytes;  // BTH to ICRC
};

// Shares are in millionths of all datagrams.
struct Impairment {
  uint32_t lost = 0;
  uint32_t doubled = 0;
  uint32_t damaged = 0;
  uint32_t forged = 0;         // damaged, but with an ICRC that fits: what no honest peer sends
  uint32_t overtaken = 0;      // held back, so that later ones come first
  base::Duration held_back{};  // by at most so much
  base::Duration delay{};      // one way, each datagram
  base::Duration jitter{};     // at most so much more, order kept
};

// A host's line to the switch and from it.
struct LineConfig {
  uint64_t bits_per_second = 10'000'000'000;
  size_t send_queue_bytes = 1 << 20;     // a full one makes the sender wait
  size_t receive_queue_bytes = 1 << 20;  // a full one drops
  Impairment impairment;                 // of what comes to this host
};

struct NetworkConfig : LineConfig {
  std::vector<LineConfig> own_lines;  // of the first hosts; the others' is the one above

  [[nodiscard]] const LineConfig& line(HostId host) const {
    return host < own_lines.size() ? own_lines[host] : *this;
  }
};

class Network {
 public:
  using Receiver = std::function<void(Datagram)>;

  Network(EventQueue& events, Journal& journal, Random random, const NetworkConfig& config);

  HostId add(Receiver receiver);
  [[nodiscard]] roce::Flow flow(HostId from, HostId to) const;
  // False: the sender's line has no room; room_at() says when it will have.
  [[nodiscard]] bool has_room(HostId from) const;
  [[nodiscard]] base::Instant room_at(HostId from) const;
  void send(Datagram datagram);
  // Nothing passes between the two until then.
  void part(HostId a, HostId b, base::Instant until);

  [[nodiscard]] std::vector<std::byte> buffer(size_t bytes);
  void give_back(std::vector<std::byte> buffer);

  struct Counters {
    uint64_t sent = 0;
    uint64_t lost = 0;
    uint64_t overflowed = 0;
    uint64_t doubled = 0;
    uint64_t damaged = 0;
    uint64_t overtaken = 0;
    uint64_t parted = 0;
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Port {
    Link up;
    Link down;
    Receiver receiver;
    base::Instant last_arrival{};
    std::vector<base::Instant> parted_until;  // by the other's number
  };
  void cross(Datagram datagram);
  void arrive(Datagram datagram, base::Instant when);
  void say(const char* what, const Datagram& datagram);

  EventQueue& events_;
  Journal& journal_;
  Random random_;
  NetworkConfig config_;
  std::vector<Port> ports_;
  std::vector<std::vector<std::byte>> spare_;
  Counters counters_;
};

}  // namespace verbena::sim
