// A send queue as the engine's requesters see it: requests by number, and their memory.
#pragma once

#include <functional>
#include <memory>

#include "engine/request.hpp"
#include "verbs/own_memory.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_owner.hpp"
#include "verbs/send_path.hpp"
#include "verbs/send_queue.hpp"

namespace verbena::wire {

[[nodiscard]] engine::Request request_of(const verbs::SendRequest& from);

// All but serve() with the queue's lock held.
class QueueRequests final : public engine::RequesterHost {
 public:
  // `self` is this process, in whose memory the requests' own bytes lie.
  QueueRequests(verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self, uint32_t domain)
      : process_(process), self_(std::move(self)), domain_(domain) {}

  // It outlives us: a queue pair ends its path before its queues.
  void serve(verbs::SendQueue& queue) { queue_ = &queue; }
  // A new requester, which counts from 0, begins with the first request that isn't handed over.
  verbs::SendQueue* begin();
  // The send queue has carried one out by itself, and none of the requester's is under way.
  void pass_over() { ++first_; }
  // Null: nothing is served yet. Whoever looks is inside the port, which lets no path go meanwhile.
  [[nodiscard]] verbs::SendQueue* queue() const { return queue_; }
  // Nothing of a request that can't be whole is sent.
  [[nodiscard]] bool readable(const verbs::SendRequest& request) const;
  [[nodiscard]] static verbs::SendOutcome unreadable() {
    return {verbs::SendOutcome::Kind::kFailed, IBV_WC_LOC_PROT_ERR, engine::Verdict::kFaultHere};
  }

  [[nodiscard]] bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] bool scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                             engine::Tail tail) override;
  [[nodiscard]] size_t scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                                    engine::MorePayloads& payloads) override;
  [[nodiscard]] const std::byte* in_place(uint32_t number, uint64_t offset, size_t length) override;
  void ended(uint32_t number, engine::RequestStatus status) override;
  void set_other_path(std::function<bool()> other_path) { other_path_ = std::move(other_path); }
  [[nodiscard]] bool other_path() override { return other_path_ && other_path_(); }

 private:
  [[nodiscard]] std::byte* in_burst(const verbs::SendRequest& request, uint64_t offset, size_t length,
                                    verbs::Access access) const;

  verbs::Process& process_;
  std::shared_ptr<verbs::QueueOwner> self_;
  uint32_t domain_;
  verbs::SendQueue* queue_ = nullptr;
  std::function<bool()> other_path_;
  uint32_t first_ = 0;  // the queue's number of what is the requester's request 0
};

}  // namespace verbena::wire
