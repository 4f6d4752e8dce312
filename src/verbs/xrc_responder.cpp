#include "verbs/xrc_responder.hpp"

namespace verbena::verbs {

using engine::Arrival;
using engine::AtomicRequest;
using engine::RemoteRange;
using engine::RemoteUse;
using engine::Tail;
using engine::Verdict;

namespace {
constexpr size_t kMostLanes = 4096;  // numbers that were never good don't count
}

XrcResponder::XrcResponder(std::shared_ptr<QueueOwner> keeper, base::Qpn target,
                           const RequesterIdentity& requester, std::unique_ptr<LaneFinder> finder)
    : keeper_(std::move(keeper)),
      target_(target),
      requester_(requester),
      finder_(std::move(finder)),
      plain_(keeper_, target, requester) {}

Verdict XrcResponder::aim(uint32_t srq) {
  receive_failed_ = false;
  if (current_ != nullptr && aimed_ == srq && current_->responder->lane_holds()) [[likely]]
    return Verdict::kDone;
  current_ = nullptr;
  if (auto reached = plain_.reach(); reached != Verdict::kDone) return reached;
  auto found = lanes_.find(srq);
  if (found != lanes_.end() && !found->second.responder->lane_holds()) {
    lanes_.erase(found);
    found = lanes_.end();
  }
  if (found == lanes_.end()) {
    SharedTarget lane;
    if (auto there = finder_->find(srq, lane); there != Verdict::kDone) return there;
    if (lanes_.size() >= kMostLanes) lanes_.clear();
    auto responder = std::make_unique<Responder>(keeper_, target_, requester_, lane);
    found = lanes_.emplace(srq, Lane{std::move(lane), std::move(responder)}).first;
  }
  if (auto reached = found->second.responder->reach(); reached != Verdict::kDone) return reached;
  current_ = &found->second;
  aimed_ = srq;
  return Verdict::kDone;
}

Verdict XrcResponder::check(const RemoteRange& range, RemoteUse use) {
  return current_->responder->check(range, use);
}

Verdict XrcResponder::write(const RemoteRange& range, std::span<const iovec> from, Tail tail) {
  return current_->responder->write(range, from, tail);
}

Verdict XrcResponder::read(const RemoteRange& range, std::span<const iovec> into, Tail tail) {
  return current_->responder->read(range, into, tail);
}

Verdict XrcResponder::atomic(const AtomicRequest& request, uint64_t& before) {
  const Verdict verdict = current_->responder->atomic(request, before);
  if (verdict != Verdict::kAsk) return verdict;
  return finder_->run_atomic(current_->target, request, before);
}

Verdict XrcResponder::begin_receive(const Arrival& arrival) {
  return current_->responder->begin_receive(arrival);
}

Verdict XrcResponder::place(uint64_t offset, std::span<const iovec> from, Tail tail) {
  return current_->responder->place(offset, from, tail);
}

Verdict XrcResponder::finish_receive(const Arrival& arrival) {
  return current_->responder->finish_receive(arrival);
}

Verdict XrcResponder::deliver(const Arrival& arrival, std::span<const iovec> from) {
  return current_->responder->deliver(arrival, from);
}

// The receive ends at its owner's, the queue pair at the keeper's.
Verdict XrcResponder::fail(Verdict why, bool consumes_receive) {
  if (current_ != nullptr && !receive_failed_) {
    if (current_->responder->fail_receive(why, consumes_receive) == Verdict::kNoRoom) return Verdict::kNoRoom;
    receive_failed_ = true;
  }
  return plain_.fail(why, false);
}

}  // namespace verbena::verbs
