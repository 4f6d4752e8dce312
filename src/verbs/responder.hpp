// The responder's actions over a process's arena: the one meaning of SEND, WRITE, READ and atomics (P4).
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <vector>

#include "arena/shared_receives.hpp"
#include "base/numbers.hpp"
#include "engine/responder_actions.hpp"
#include "verbs/key_check.hpp"
#include "verbs/queue_owner.hpp"

namespace verbena::verbs {

// Who asks: what the target must have been told to be connected to.
struct RequesterIdentity {
  base::Qpn qpn;
  uint32_t incarnation = 0;  // of the requester's queue pair
  uint32_t first_psn = 0;
  uint64_t gid[2] = {};
  base::Slot accessor;  // the process that carries the requests out: the requester's own, or the target's
  ibv_qp_type type = IBV_QPT_RC;  // UD: anybody, so nothing above but the accessor counts
  bool by_network = false;        // its side of each copy is a packet of ours, which is surely there
};

// XRC: the shared receive queue that a request names. Its owner, the queue pair's and the process that
// carries the request out can all differ.
struct SharedTarget {
  std::shared_ptr<QueueOwner> owner;
  uint32_t number = 0;
  uint32_t life = 0;                   // of the queue that is meant
  std::shared_ptr<DeliveryPort> port;  // of ours, into its completion queue
};

// One connection's view of the queue pair at its other end. Used by one thread at a time, in request order.
class Responder final : public engine::ResponderActions {
 public:
  Responder(std::shared_ptr<QueueOwner> owner, base::Qpn target, const RequesterIdentity& requester);
  // A lane of an XRC target queue pair, which lies in `keeper`: what comes goes to that shared queue.
  Responder(std::shared_ptr<QueueOwner> keeper, base::Qpn target, const RequesterIdentity& requester,
            SharedTarget shared);
  ~Responder() override { give_back(); }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // Each action begins with this: is the target still the one we are connected to, and able to answer?
  [[nodiscard]] engine::Verdict reach() {
    if (entry_.word.acquire() == seen_word_ && !keeper_->gone() && lane_holds()) [[likely]]
      return engine::Verdict::kDone;
    return look_again();
  }
  // Of a lane: is the shared queue still the one that was meant?
  [[nodiscard]] bool lane_holds() const {
    return lane_ == nullptr || (lane_->life.acquire() == lane_life_ && !owner_->gone());
  }
  // Of a lane: the message at hand ends in an error over there, if it has a receive. The queue pair's own
  // failure is told elsewhere. kNoRoom: call again.
  [[nodiscard]] engine::Verdict fail_receive(engine::Verdict why, bool consumes_receive);
  // How long a requester waits when no receive is posted.
  [[nodiscard]] uint8_t rnr_timer_code() const { return rnr_timer_; }
  [[nodiscard]] bool receive_waits();
  // Tells post_recv that somebody sleeps until a receive is there. False: one is there already.
  [[nodiscard]] bool wait_for_receive();
  [[nodiscard]] QueueOwner& owner() { return *owner_; }
  [[nodiscard]] base::Qpn target() const { return target_; }
  [[nodiscard]] uint32_t target_incarnation() const { return incarnation_; }

  [[nodiscard]] engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override;
  [[nodiscard]] engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] engine::Verdict read(const engine::RemoteRange& range, std::span<const iovec> into,
                                     engine::Tail tail) override;
  [[nodiscard]] size_t write_more(const engine::RemoteRange& range, size_t each, engine::Tail tail,
                                  engine::MorePayloads& payloads) override;
  [[nodiscard]] size_t place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) override;
  [[nodiscard]] const std::byte* in_place(const engine::RemoteRange& range) override;
  [[nodiscard]] engine::Verdict atomic(const engine::AtomicRequest& request, uint64_t& before) override;
  [[nodiscard]] engine::Verdict begin_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict place(uint64_t offset, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] engine::Verdict finish_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  // `from` begins with the GRH; arrival.length is without it.
  [[nodiscard]] engine::Verdict deliver_datagram(const engine::Arrival& arrival, std::span<const iovec> from);
  void abandon_receive() override { give_back(); }
  [[nodiscard]] uint32_t credits() override;
  // How many receives had been posted in all when credits() was last asked, and how many have now. The latter
  // on any thread.
  [[nodiscard]] uint32_t posted_then() const { return posted_; }
  [[nodiscard]] uint32_t posted_now() const { return entry_.posted.acquire(); }
  [[nodiscard]] engine::Verdict fail(engine::Verdict why, bool consumes_receive) override;

  // Longer messages are placed straight into the receive's buffers.
  static constexpr uint64_t kLongestInRing = 8192;

 private:
  [[nodiscard]] engine::Verdict look_again();
  [[nodiscard]] std::optional<engine::Verdict> look_at(uint64_t word);
  [[nodiscard]] engine::Verdict look_at_lane(uint32_t domain);
  [[nodiscard]] bool is_connected_to_us(uint32_t type) const;
  [[nodiscard]] bool bind();
  [[nodiscard]] engine::Verdict take_credit(uint64_t length);
  [[nodiscard]] engine::Verdict credit_for(uint64_t length);
  [[nodiscard]] engine::Verdict claim_receive();
  // A receive that was claimed for a message that won't come goes back to the shared queue.
  void give_back();
  // The one that the message at hand goes into; null: the owner's tables make no sense.
  [[nodiscard]] const arena::ReceiveEntry* current_receive() const {
    return shared_ ? shared_.entry(claim_->entry) : receive_entry(consumed_);
  }
  [[nodiscard]] engine::Verdict look_at_receive(uint64_t length);
  [[nodiscard]] engine::Verdict place_now(uint64_t offset, std::span<const iovec> from, engine::Tail tail);
  // Receives are read without a lock. What was found wrong with them may be another's by now, if their queue
  // pair has left meanwhile: then that is the verdict.
  [[nodiscard]] engine::Verdict confirmed(engine::Verdict of_receive) {
    if (of_receive == engine::Verdict::kDone) return of_receive;
    std::atomic_thread_fence(std::memory_order_acquire);
    const auto reached = reach();
    return reached == engine::Verdict::kDone ? of_receive : reached;
  }
  [[nodiscard]] engine::Verdict send_record(arena::Record record, std::span<const iovec> from,
                                            uint64_t length);
  [[nodiscard]] engine::Verdict put(const arena::Record& record, std::span<const iovec> from,
                                    uint64_t length);
  // Null: no burst of packets goes on, or it isn't so simple.
  [[nodiscard]] std::byte* in_burst(const engine::RemoteRange& range, uint32_t access) const;
  [[nodiscard]] engine::Verdict move_packet(const iovec& packet, const Region& region, engine::Tail tail,
                                            bool reading) const;
  [[nodiscard]] engine::Verdict find(const engine::RemoteRange& range, uint32_t access, Region& region);
  [[nodiscard]] engine::Verdict may_invalidate(const engine::Arrival& arrival) const;
  // Is a message of ours still in the owner's ring that invalidates this key?
  [[nodiscard]] bool being_invalidated(uint32_t key);
  [[nodiscard]] engine::Verdict move(const engine::RemoteRange& range, uint32_t access,
                                     std::span<const iovec> ours, engine::Tail tail, bool reading);
  // Do messages of ours that wait in the owner's ring belong into this piece of its memory? Then whatever
  // reads it must wait until they are there.
  [[nodiscard]] bool awaits_message(uint64_t address, uint64_t length);
  [[nodiscard]] bool receive_touches(const arena::ReceiveEntry& receive, uint64_t address,
                                     uint64_t length) const;
  [[nodiscard]] engine::Verdict call_for_merge();
  void ring_bell(bool solicited);
  [[nodiscard]] const arena::ReceiveEntry* receive_entry(uint32_t number) const;

  std::shared_ptr<QueueOwner> keeper_;  // in whose process the queue pair is
  std::shared_ptr<QueueOwner> owner_;   // of the receives and the memory: the same, but for a lane
  base::Qpn target_;
  RequesterIdentity requester_;
  arena::QpEntry& entry_;
  const arena::SrqEntry* lane_ = nullptr;  // XRC: the shared queue, in its owner's tables
  uint16_t lane_index_ = 0;
  uint32_t lane_life_ = 0;

  // What the entry said when it last changed.
  static constexpr uint64_t kUnseen = UINT64_MAX;  // no word of an entry: it would be "changing"
  uint64_t seen_word_ = kUnseen;
  uint32_t incarnation_ = 0;
  uint32_t domain_ = 0;
  uint32_t access_ = 0;
  uint16_t cq_ = 0;
  uint8_t rnr_timer_ = 0;
  bool bound_ = false;
  bool has_channel_ = false;
  uint64_t receives_at_ = 0;
  uint32_t receives_mask_ = 0;
  uint32_t receives_stride_ = 0;
  uint32_t receives_domain_ = 0;  // which its receives' keys are in
  std::shared_ptr<DeliveryPort> port_;
  // Where it shares its receives with other queue pairs: those, and the one that we claimed.
  arena::SharedReceives shared_;
  std::optional<arena::SharedReceives::Claim> claim_;

  // Credits: receives consumed by us in this connection, and what we last knew was posted.
  uint32_t consumed_ = 0;
  uint32_t posted_ = 0;
  uint32_t fits_plus_one_ = 0;
  uint32_t last_in_ring_ = 0;  // the ring's count after our last message whose bytes went through it
  // Windows that messages of ours invalidate once the owner takes them out of its ring, and the ring's count
  // after the last of those.
  std::vector<uint32_t> invalidating_;
  uint32_t last_invalidation_ = 0;
};

}  // namespace verbena::verbs
