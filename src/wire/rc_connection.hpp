// The path of a reliably connected queue pair, or an XRC one, over the network: its requester and its
// responder.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "verbs/responder.hpp"
#include "verbs/xrc_responder.hpp"
#include "wire/pipelined_path.hpp"

namespace verbena::wire {

class RcConnection final : public ConnectedPath {
 public:
  // `self` is this process, whose arena and memory the peer's requests act upon.
  // `lanes`, of an XRC target in the keeper: instead, the owners of the shared queues that requests name.
  RcConnection(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
               const Peering& peering, std::unique_ptr<verbs::LaneFinder> lanes = nullptr);
  ~RcConnection() override;

  // The send queue's side, with its lock held.
  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                           uint64_t budget) override;
  void set_rules(const verbs::RetryRules& rules) override;
  void push() override;
  void stop() override {
    PipelinedPath::stop();
    tell_under_way(0);
  }

  // The port's side.
  Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) override;
  size_t on_more(base::Instant now, const roce::Packet& before, engine::MorePayloads& payloads) override;
  void go_on(base::Instant now) override;
  void acknowledge(base::Instant now) override;

 private:
  void send_requests(base::Instant now, Port::Sending& sending);
  [[nodiscard]] bool emit_requests(Port::Sending& sending);
  void note_progress(base::Instant now, bool more);
  void tell_under_way(uint32_t packets);
  void send_answers(base::Instant now);
  void send_answers(base::Instant now, Port::Sending& sending);
  void acknowledge_or_put_off(base::Instant now, Port::Sending& sending, bool requests_follow);
  void take_back(const Port::Sending& sending);
  void carry_owed(Port::Sending& sending);
  [[nodiscard]] bool has_unsent() const { return requester_ && !stopped_ && requester_->has_unsent(); }

  // Under the send queue's lock.
  std::optional<engine::RcRequester> requester_;
  verbs::RetryRules rules_;
  engine::RcRequester::Counters told_;  // what the port knows of its counters
  uint32_t told_under_way_ = 0;         // and of its packets that aren't acknowledged

  // Under the port's receiving lock.
  verbs::Responder actions_;
  std::unique_ptr<verbs::XrcResponder> xrc_;  // instead, for an XRC target
  engine::RcResponder responder_;

  // What the program sends comes after the acknowledgement of what it has received, as adapters have it: the
  // peer's program may rely on the end of its own request before our answer to it (adr/0015).
  //
  // From before a request's effect can be seen until its acknowledgement is sent or put off: a post in
  // between leaves what it has to whoever holds the receiving lock. That one will find it. It sets this to
  // false with the send queue's lock held, and sends what is there; a post sees `true` with that lock held,
  // so it was first.
  std::atomic<bool> answering_ = false;
  // The acknowledgement that was put off: whoever sends requests takes it along. Under the port's sending
  // lock.
  struct Owed {
    roce::Packet packet;
    uint32_t credits = 0;  // that it tells, when so many receives had been posted in all
    uint32_t posted = 0;
  };
  std::optional<Owed> owed_;
};

}  // namespace verbena::wire
