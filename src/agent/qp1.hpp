// The host's QP1: what peers send to the agent itself. It tells that Verbena is here (roce/greeting.hpp) and
// carries connection management's MADs.
#pragma once

#include <functional>
#include <memory>

#include "arena/registry.hpp"
#include "base/result.hpp"
#include "cm/manager.hpp"
#include "net/transmitter.hpp"
#include "net/udp_link.hpp"

namespace verbena::agent {

class Qp1 final : private net::Sink {
 public:
  using Count = std::function<void(arena::Counter)>;
  // `socket` is slot 0's and stays the caller's.
  // False: not a MAD of the connection manager's.
  using OnMad = std::function<bool(const cm::Way&, std::span<const std::byte>)>;
  [[nodiscard]] static base::Result<std::unique_ptr<Qp1>> create(int socket, Count count, OnMad on_mad);
  // Takes what has come and answers it.
  void read();
  // To the peer's QP1; leaves with the next flush().
  void send(const cm::Outgoing& outgoing);
  void flush() { transmitter_.flush(); }

 private:
  Qp1(std::unique_ptr<net::UdpLink> link, Count count, OnMad on_mad)
      : link_(std::move(link)), transmitter_(*link_), count_(std::move(count)), on_mad_(std::move(on_mad)) {}
  void on_packet(const net::Received& received) override;
  [[nodiscard]] bool take(const net::Received& received);
  [[nodiscard]] bool take_mad(const net::Received& received, const roce::Packet& packet);

  std::unique_ptr<net::UdpLink> link_;
  net::Transmitter transmitter_;
  Count count_;
  OnMad on_mad_;
  base::Psn psn_;  // of the next MAD; nobody looks at it
};

}  // namespace verbena::agent
