// The host's QP1: what peers send to the agent itself. So far it tells that Verbena is here
// (roce/greeting.hpp); connection management comes with RDMA CM.
#pragma once

#include <functional>
#include <memory>

#include "arena/registry.hpp"
#include "base/result.hpp"
#include "net/transmitter.hpp"
#include "net/udp_link.hpp"

namespace verbena::agent {

class Qp1 final : private net::Sink {
 public:
  using Count = std::function<void(arena::Counter)>;
  // `socket` is slot 0's and stays the caller's.
  [[nodiscard]] static base::Result<std::unique_ptr<Qp1>> create(int socket, Count count);
  // Takes what has come and answers it.
  void read();

 private:
  Qp1(std::unique_ptr<net::UdpLink> link, Count count)
      : link_(std::move(link)), transmitter_(*link_), count_(std::move(count)) {}
  void on_packet(const net::Received& received) override;
  [[nodiscard]] bool take(const net::Received& received);

  std::unique_ptr<net::UdpLink> link_;
  net::Transmitter transmitter_;
  Count count_;
};

}  // namespace verbena::agent
