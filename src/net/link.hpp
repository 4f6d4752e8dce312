// A link: where packets go out and come in. Sockets, the memory link and the middlewares that wrap another
// link are alike behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/numbers.hpp"
#include "base/time.hpp"
#include "net/address.hpp"
#include "net/counter.hpp"
#include "roce/icrc.hpp"

namespace verbena::net {

// The way of a packet; all that is the same for all packets of a run.
struct Route {
  Address from;  // an address of this host, never unspecified: the ICRC covers it
  Address to;
  uint32_t interface = 0;     // needed for link-local and multicast destinations; 0: by the routing table
  uint8_t traffic_class = 0;  // DSCP and ECN
  uint8_t hop_limit = 64;
  base::Slot slot;          // the destination queue pair's
  bool recognised = false;  // the peer is Verbena, so runs may be segmented and the UDP checksum is used

  bool operator==(const Route&) const = default;
};

inline constexpr size_t kMaxRunPackets = 64;    // what every kernel with UDP_SEGMENT takes
inline constexpr size_t kMaxRunBytes = 65'000;  // a UDP datagram's limit, with room for any header

// Packets of one size (the last may be shorter) behind each other, each from BTH to ICRC. The ICRC of the
// i-th is made with IPv4 ID i (roce::IdRule::kSegment).
struct Run {
  Route route;
  uint16_t segment_bytes = 0;
  std::span<const std::byte> bytes;

  [[nodiscard]] size_t packets() const { return (bytes.size() + segment_bytes - 1) / segment_bytes; }
  [[nodiscard]] std::span<const std::byte> packet(size_t index) const {
    const auto rest = bytes.subspan(index * segment_bytes);
    return rest.first(rest.size() < segment_bytes ? rest.size() : segment_bytes);
  }
};

// One packet, with what its IP and UDP headers said. Nothing in it has been checked.
struct Received {
  Address from;
  Address to;
  uint16_t source_port = 0;
  uint32_t interface = 0;     // on which it came
  uint8_t traffic_class = 0;  // this and the next where the link was asked to tell them
  uint8_t hop_limit = 0;
  unsigned segment = 0;              // its place in a merged receive, for roce::icrc_fits
  std::span<const std::byte> bytes;  // BTH to ICRC; valid during the call

  [[nodiscard]] roce::Flow flow() const {
    return {.source = from.bytes, .destination = to.bytes, .source_port = source_port};
  }
};

// Packets that the kernel had merged into one datagram: of one length, but the last, which may be shorter.
struct ReceivedRun {
  Received about;  // all that they have in common
  size_t segment_bytes = 0;
  std::span<const std::byte> bytes;

  // An empty datagram is a packet as well, if a bad one: whoever parses it counts it.
  [[nodiscard]] size_t packets() const {
    return bytes.empty() ? 1 : (bytes.size() + segment_bytes - 1) / segment_bytes;
  }
  [[nodiscard]] std::span<const std::byte> packet_bytes(size_t index) const {
    const auto rest = bytes.subspan(index * segment_bytes);
    return rest.first(rest.size() < segment_bytes ? rest.size() : segment_bytes);
  }
  [[nodiscard]] Received packet(size_t index) const {
    Received one = about;
    one.segment = static_cast<unsigned>(index);
    one.bytes = packet_bytes(index);
    return one;
  }
};

class Sink {
 public:
  virtual void on_packet(const Received& packet) = 0;
  // For who takes many at once sooner than one by one.
  virtual void on_run(const ReceivedRun& run) {
    for (size_t i = 0; i < run.packets(); ++i) on_packet(run.packet(i));
  }

 protected:
  ~Sink() = default;
};

// One thread may send while another receives; two may not do the same at once.
class Link {
 public:
  virtual ~Link() = default;

  // False: there is no room now, or it can't be sent; the run is lost for the link, which counts why. A run
  // for a peer that isn't recognised has one packet.
  virtual bool send(const Run& run) = 0;

  // The UDP source port that packets on this route carry, now and later: the ICRC covers it. 0: there is no
  // socket to be had, and a send would fail, too.
  [[nodiscard]] virtual uint16_t source_port(const Route& route) = 0;

  // Hands over what has come, or the first of it, without waiting; how many packets that were. When `budget`
  // is reached no more is fetched; what was fetched already is never kept back, so it can be exceeded by a
  // few runs.
  virtual size_t receive(Sink& sink, size_t budget) = 0;

  // From now on traffic class and hop limit of what comes are told: to find them out costs time, and most
  // have no use for them. On the thread that receives.
  virtual void tell_hops() {}

  // When receive() has something to hand over though nothing comes in; on its thread.
  [[nodiscard]] virtual std::optional<base::Instant> next_deadline() const { return {}; }

  // Readable when there is something to receive; -1: there is nothing to wait on, or it is gone.
  [[nodiscard]] virtual int fd() const = 0;

  // What it has counted, always the same names in the same order.
  virtual void visit_counters(const CounterVisitor&) const {}
};

}  // namespace verbena::net
