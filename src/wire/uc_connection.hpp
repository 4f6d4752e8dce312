// The path of an unreliably connected queue pair over the network.
#pragma once

#include <memory>
#include <optional>

#include "engine/uc_requester.hpp"
#include "engine/uc_responder.hpp"
#include "verbs/responder.hpp"
#include "wire/pipelined_path.hpp"

namespace verbena::wire {

class UcConnection final : public ConnectedPath {
 public:
  // `self` is this process, whose arena and memory the peer's requests act upon.
  UcConnection(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
               const Peering& peering);
  ~UcConnection() override;

  // The send queue's side, with its lock held.
  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                           uint64_t budget) override;
  void set_rules(const verbs::RetryRules& rules) override;
  void push() override;
  void resume() override;

  // The port's side.
  Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) override;
  void go_on(base::Instant now) override;

 private:
  void make_requester();
  void send_requests(base::Instant now, Port::Sending& sending);

  // Under the send queue's lock.
  std::optional<engine::UcRequester> requester_;

  // Under the port's receiving lock.
  verbs::Responder actions_;
  engine::UcResponder responder_;
};

}  // namespace verbena::wire
