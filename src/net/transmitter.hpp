// Where the engine emits packets: room for one, then what is to become of it. The ICRC is written here, and
// packets of one route that follow each other leave as one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "net/counter.hpp"
#include "net/link.hpp"

namespace verbena::net {

// The largest packet, BTH to ICRC: a path MTU of 4,096 bytes and all headers, with much to spare.
inline constexpr size_t kMaxPacketBytes = 8'192;

struct TransmitCounters {
  Counter packets;       // committed
  Counter runs;          // handed to the link
  Counter lost_packets;  // of runs that the link refused; the engine's retries bring them again
};

// One thread at a time. Allocates nothing after its construction.
class Transmitter {
 public:
  explicit Transmitter(Link& link);

  // Room for one packet of up to `bytes` (ICRC included), until the next call of anything here.
  [[nodiscard]] std::span<std::byte> space(size_t bytes);

  // The packet that was written into the last space(): its length without padding to spare, ICRC included.
  // Writes the ICRC into its last four bytes.
  void commit(const Route& route, size_t bytes);

  // A packet whose payload lies elsewhere and has no padding: copied, and its ICRC taken, in one pass.
  void append(const Route& route, std::span<const std::byte> headers, std::span<const std::byte> payload);
  // How many packets of that length (ICRC included) fit into the run at hand or, where they don't join it,
  // into one of their own.
  [[nodiscard]] size_t room_for(const Route& route, size_t bytes) const;

  // Sends what is waiting. To be called before its caller leaves the network alone.
  void flush();

  // Packets that wait for flush().
  [[nodiscard]] size_t waiting() const { return packets_; }

  [[nodiscard]] const TransmitCounters& counters() const { return counters_; }

 private:
  [[nodiscard]] bool joins(const Route& route, size_t bytes) const;
  void begin(const Route& route, size_t bytes);
  void end_packet(const Route& route, size_t bytes);

  Link& link_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t end_ = 0;  // of the current run, which begins where the buffer does
  size_t packets_ = 0;
  size_t segment_bytes_ = 0;
  Route route_;
  uint16_t source_port_ = 0;
  roce::RecentFlows flows_;
  const roce::FlowIcrc* flow_ = nullptr;  // of the current run
  TransmitCounters counters_;
};

}  // namespace verbena::net
