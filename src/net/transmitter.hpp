// Where the engine emits packets: room for one, then what is to become of it. The ICRC is written here, and
// packets of one route that follow each other leave as one run.
#pragma once

#include <array>
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
  // How many packets of that length (ICRC included) can be appended with nothing sent before the last of
  // them.
  [[nodiscard]] size_t room_for(const Route& route, size_t bytes) const;

  // A short packet that must not come after those which are committed behind it, up to flush(). Who gets a
  // run takes what rides at its end first (adr/0015): so it becomes the end of their run if it can, and else
  // leaves before that. It is written into rider_space(), which sends what waits already.
  [[nodiscard]] std::span<std::byte> rider_space();
  void carry(const Route& route, size_t bytes);

  // Sends what is waiting. To be called before its caller leaves the network alone.
  void flush();

  // Packets that wait for flush().
  [[nodiscard]] size_t waiting() const { return packets_; }

  [[nodiscard]] const TransmitCounters& counters() const { return counters_; }

 private:
  [[nodiscard]] bool joins(const Route& route, size_t bytes) const;
  void end_packet(const Route& route, size_t bytes);
  void begin_run(const Route& route, size_t bytes);
  [[nodiscard]] bool rider_fits() const;
  void append_rider();
  void send_rider();
  void send_run();
  void hand_over(const Run& run, size_t packets);

  Link& link_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t end_ = 0;  // of the current run, which begins where the buffer does
  size_t packets_ = 0;
  size_t segment_bytes_ = 0;
  Route route_;
  uint16_t source_port_ = 0;
  roce::RecentFlows flows_;
  const roce::FlowIcrc* flow_ = nullptr;  // of the current run
  std::array<std::byte, 32> rider_;
  size_t rider_bytes_ = 0;  // 0: there is none
  Route rider_route_;
  TransmitCounters counters_;
};

}  // namespace verbena::net
