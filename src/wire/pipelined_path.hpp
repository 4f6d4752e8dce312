// What the paths of all services over the network share: requests are handed to an engine, many at a time,
// and packets come by the port.
#pragma once

#include <memory>

#include "verbs/send_path.hpp"
#include "wire/peering.hpp"
#include "wire/port.hpp"
#include "wire/queue_requests.hpp"

namespace verbena::wire {

class PipelinedPath : public verbs::SendPath, public Connection {
 public:
  // The send queue's side, with its lock held.
  void begin(uint32_t sq_psn) override { next_psn_ = {sq_psn}; }
  void stop() override { stopped_ = true; }
  void pass_over() override { requests_.pass_over(); }
  // From here on packets come.
  void serve(const std::shared_ptr<verbs::SendQueue>& queue) override {
    requests_.serve(queue);
    served_ = true;
    port_->add(*this);
  }
  // Waiting for a receive, and the peer's end, are the engine's business, or nobody's.
  [[nodiscard]] uint8_t rnr_timer_code() const override { return 0; }
  [[nodiscard]] bool peer_gone() const override { return false; }
  [[nodiscard]] bool ask_for_receive() override { return true; }
  void tell_posted() override {}

 protected:
  PipelinedPath(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
                uint32_t domain)
      : port_(std::move(port)), requests_(process, std::move(self), domain) {}
  // The first thing in a destructor: the port calls what is being destroyed.
  void leave() {
    if (served_) port_->remove(*this);
  }

  std::shared_ptr<Port> port_;
  QueueRequests requests_;
  // Under the send queue's lock.
  base::Psn next_psn_;  // with which the next requester begins
  bool stopped_ = false;

 private:
  bool served_ = false;
};

// Of a connected queue pair: one way, whose other end may turn out to be Verbena.
class ConnectedPath : public PipelinedPath {
 public:
  [[nodiscard]] base::Qpn own() const override { return peering_.own; }
  [[nodiscard]] const net::Route* route() const override { return &peering_.route; }
  void recognise() override { recognised_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool recognised() const override { return recognised_.load(std::memory_order_relaxed); }

 protected:
  ConnectedPath(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
                const Peering& peering)
      : PipelinedPath(std::move(port), process, std::move(self), peering.domain),
        peering_(peering),
        recognised_(peering.route.recognised) {}
  [[nodiscard]] net::Route way() const {
    net::Route route = peering_.route;
    route.recognised = recognised();
    return route;
  }

  Peering peering_;

 private:
  std::atomic<bool> recognised_;
};

}  // namespace verbena::wire
