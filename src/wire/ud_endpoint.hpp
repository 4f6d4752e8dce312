// A datagram queue pair's end of the network: sends to whom each request says, takes from anybody.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/ud.hpp"
#include "verbs/responder.hpp"
#include "wire/pipelined_path.hpp"

namespace verbena::wire {

struct UdConfig {
  base::Qpn own;
  uint32_t domain = 0;
  uint32_t mtu = 1024;
  uint32_t qkey = 0;
  std::vector<net::Address> addresses;  // of the device's port, by which a datagram of its own is recognised
};

class UdEndpoint final : public PipelinedPath, private engine::DatagramActions, private engine::DatagramWays {
 public:
  UdEndpoint(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
             const UdConfig& config);
  ~UdEndpoint() override;

  // The send queue's side, with its lock held.
  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                           uint64_t budget) override;
  void set_rules(const verbs::RetryRules& rules) override;
  void push() override;
  void resume() override;

  // The port's side.
  [[nodiscard]] base::Qpn own() const override { return config_.own; }
  [[nodiscard]] const net::Route* route() const override { return nullptr; }
  void recognise() override {}
  [[nodiscard]] bool recognised() const override { return false; }
  Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) override;
  void go_on(base::Instant now) override;

 private:
  [[nodiscard]] engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  [[nodiscard]] engine::Verdict fail(engine::Verdict why) override { return actions_.fail(why, false); }
  [[nodiscard]] engine::PacketSink& way(const engine::DatagramRequest& request) override;
  void make_requester();
  void send_requests(base::Instant now);

  UdConfig config_;
  std::atomic<uint32_t> qkey_;  // as last set

  // Under the send queue's lock.
  std::optional<engine::UdRequester> requester_;
  uint32_t posted_ = 0;               // the queue's number of the next request
  Port::Sending* sending_ = nullptr;  // while requests are being sent
  base::Instant now_{};               // the same
  bool by_lane_ = false;              // the last one's way

  // Under the port's receiving lock.
  verbs::Responder actions_;
  engine::UdResponder responder_;
  const net::Received* received_ = nullptr;  // the packet that is being delivered
  size_t udp_payload_ = 0;                   // of it, from BTH to ICRC
};

}  // namespace verbena::wire
