// A process with its socket: takes what has come in, drives its connections' engines, sends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "sim/endpoint.hpp"
#include "sim/network.hpp"

namespace verbena::sim {

struct HostConfig {
  size_t inbox_bytes = 212'992;  // the socket's buffer
  base::Duration poll_delay{};   // at most so long until the process looks into it
  ReceivePoolsConfig pools;      // for XRC connections
};

class Host {
 public:
  Host(EventQueue& events, Network& network, Journal& journal, Oracle& oracle, const HostConfig& config,
       Random random);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] HostId id() const { return id_; }
  [[nodiscard]] SharedCounter& counter() { return counter_; }
  Endpoint& add(const EndpointConfig& config, HostId peer);
  [[nodiscard]] const std::vector<std::unique_ptr<Endpoint>>& endpoints() const { return endpoints_; }
  // Looks after everything, soon.
  void wake();
  void crash();
  void stop(base::Instant until) { stopped_until_ = until; }
  void judge();

  struct Counters {
    uint64_t inbox_overflows = 0;
    uint64_t bad_bytes = 0;
    uint64_t drops[static_cast<size_t>(engine::DropReason::kCount)] = {};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  class Followers;
  void on_datagram(Datagram datagram);
  void poll();
  void take_inbox();
  void take(const Datagram& datagram);
  void transmit();
  void schedule(base::Instant when);

  EventQueue& events_;
  Network& network_;
  Journal& journal_;
  Oracle& oracle_;
  HostConfig config_;
  Random random_;
  HostId id_ = 0;
  SharedCounter counter_;
  ReceivePools pools_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<HostId> peers_;  // of the endpoints
  size_t turn_ = 0;            // who sends first
  std::deque<Datagram> inbox_;
  size_t inbox_bytes_ = 0;
  base::Instant next_poll_ = engine::kNoDeadline;
  base::Instant stopped_until_{};
  bool crashed_ = false;
  Counters counters_;
};

}  // namespace verbena::sim
