// The responder's actions of an XRC connection: each request names a shared receive queue, whose owner may be
// any process of the target queue pair's domain. A lane is the connection's way to one of them.
#pragma once

#include <map>
#include <memory>

#include "engine/responder_actions.hpp"
#include "verbs/responder.hpp"

namespace verbena::verbs {

// How lanes are found; client/ knows the processes. One thread at a time asks.
class LaneFinder {
 public:
  virtual ~LaneFinder() = default;
  // kDone: `out` is all there. kAsk: its owner was asked for a ring, try again. kNoSharedQueue: nobody has
  // it.
  [[nodiscard]] virtual engine::Verdict find(uint32_t srq, SharedTarget& out) = 0;
  // Has the queue's owner run an atomic operation. kAsk: it hasn't yet, ask again with the same request.
  [[nodiscard]] virtual engine::Verdict run_atomic(const SharedTarget& lane,
                                                   const engine::AtomicRequest& request,
                                                   uint64_t& before) = 0;
};

class XrcResponder final : public engine::ResponderActions {
 public:
  XrcResponder(std::shared_ptr<QueueOwner> keeper, base::Qpn target, const RequesterIdentity& requester,
               std::unique_ptr<LaneFinder> finder);

  // How long a requester waits when no receive is posted.
  [[nodiscard]] uint8_t rnr_timer_code() const {
    return current_ != nullptr ? current_->responder->rnr_timer_code() : 0;
  }
  // False: one is there already, or nobody can be asked.
  [[nodiscard]] bool wait_for_receive() {
    return current_ == nullptr || current_->responder->wait_for_receive();
  }

  [[nodiscard]] engine::Verdict aim(uint32_t srq) override;
  [[nodiscard]] engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override;
  [[nodiscard]] engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] engine::Verdict read(const engine::RemoteRange& range, std::span<const iovec> into,
                                     engine::Tail tail) override;
  [[nodiscard]] engine::Verdict atomic(const engine::AtomicRequest& request, uint64_t& before) override;
  [[nodiscard]] engine::Verdict begin_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict place(uint64_t offset, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] engine::Verdict finish_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  [[nodiscard]] uint32_t credits() override { return UINT32_MAX; }
  [[nodiscard]] engine::Verdict fail(engine::Verdict why, bool consumes_receive) override;

 private:
  struct Lane {
    SharedTarget target;
    std::unique_ptr<Responder> responder;
  };
  std::shared_ptr<QueueOwner> keeper_;
  base::Qpn target_;
  RequesterIdentity requester_;
  std::unique_ptr<LaneFinder> finder_;
  Responder plain_;  // the queue pair itself, which is told of failures
  std::map<uint32_t, Lane> lanes_;
  Lane* current_ = nullptr;
  uint32_t aimed_ = 0;
  bool receive_failed_ = false;  // of the failure at hand: the shared queue's owner was told
};

}  // namespace verbena::verbs
