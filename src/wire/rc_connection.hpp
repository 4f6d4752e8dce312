// The path of a reliably connected queue pair over the network: its requester and its responder.
#pragma once

#include <memory>
#include <optional>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "verbs/responder.hpp"
#include "verbs/send_path.hpp"
#include "verbs/send_queue.hpp"
#include "wire/peering.hpp"
#include "wire/port.hpp"
#include "wire/queue_requests.hpp"

namespace verbena::wire {

class RcConnection final : public verbs::SendPath, public Connection {
 public:
  // `self` is this process, whose arena and memory the peer's requests act upon.
  RcConnection(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
               const Peering& peering);
  ~RcConnection() override;

  // The send queue's side, with its lock held.
  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                           uint64_t budget) override;
  void begin(uint32_t sq_psn) override { first_psn_ = {sq_psn}; }
  [[nodiscard]] uint8_t rnr_timer_code() const override { return 0; }
  [[nodiscard]] bool peer_gone() const override { return false; }
  [[nodiscard]] bool ask_for_receive() override { return true; }
  void tell_posted() override {}
  // From here on packets come.
  void serve(const std::shared_ptr<verbs::SendQueue>& queue) override;
  void set_rules(const verbs::RetryRules& rules) override;
  void push() override;
  void stop() override { stopped_ = true; }

  // The port's side.
  [[nodiscard]] base::Qpn own() const override { return peering_.own; }
  [[nodiscard]] const net::Route* route() const override { return &peering_.route; }
  void recognise() override { recognised_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool recognised() const override { return recognised_.load(std::memory_order_relaxed); }
  Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) override;
  void go_on(base::Instant now) override;

 private:
  [[nodiscard]] net::Route way() const;
  void send_requests(base::Instant now, Port::Sending& sending);
  void send_answers(base::Instant now);

  std::shared_ptr<Port> port_;
  QueueRequests requests_;
  Peering peering_;
  bool served_ = false;
  std::atomic<bool> recognised_;

  // Under the send queue's lock.
  base::Psn first_psn_;
  std::optional<engine::RcRequester> requester_;
  engine::RcRequester::Counters told_;  // what the port knows of its counters
  bool stopped_ = false;

  // Under the port's receiving lock.
  verbs::Responder actions_;
  engine::RcResponder responder_;
};

}  // namespace verbena::wire
