#include "sim/endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/pattern.hpp"

namespace verbena::sim {

using base::Instant;
using engine::Request;
using engine::RequestStatus;

namespace {

const char* name_of(RequestStatus status) {
  static constexpr const char* kNames[] = {
      "success",        "local protection",   "remote access", "remote invalid", "remote operational",
      "retry exceeded", "RNR retry exceeded", "bad response",  "local length"};
  return kNames[static_cast<unsigned>(status)];
}

engine::RcRequesterConfig requester_config(const EndpointConfig& config, Random& random) {
  return {.service = config.service,
          .target = config.peer_qpn,
          .first_psn = config.send_psn,
          .mtu = config.mtu,
          .capacity = config.capacity,
          .fetches = config.fetches,
          .timeout = config.timeout,
          .retries = config.retries,
          .rnr_retries = config.rnr_retries,
          .window_bytes = config.window_bytes,
          .chance = static_cast<uint32_t>(random.next())};
}

engine::RcResponderConfig responder_config(const EndpointConfig& config) {
  return {.service = config.service,
          .requester = config.peer_qpn,
          .first_psn = config.receive_psn,
          .mtu = config.mtu,
          .fetches = config.fetches,
          .rnr_timer = config.rnr_timer};
}

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config, EventQueue& events, Journal& journal, Oracle& oracle,
                   SharedCounter& counter, ReceivePools& pools, Random random)
    : config_(config),
      events_(events),
      journal_(journal),
      oracle_(oracle),
      counter_(counter),
      pools_(pools),
      random_(random),
      requester_(requester_config(config, random_), *this),
      responder_(responder_config(config), *this),
      results_(config.capacity),
      data_(config.data_bytes) {
  data_pattern_ = random_.next();
  requester_.set_even(data_pattern_ % 2 == 0);
  read_only_pattern_ = random_.next();
  fill_pattern(data_pattern_, 0, data_);
}

std::string Endpoint::name() const { return fmt::format("qp {:#x}", config_.qpn.value); }

void Endpoint::begin(Endpoint& peer, SharedCounter& peer_counter, std::vector<Planned> plan) {
  peer_ = &peer;
  peer_counter_ = &peer_counter;
  plan_ = std::move(plan);
  for (uint32_t i = 0; i < plan_.size(); ++i)
    if (plan_[i].request.consumes_receive()) consuming_.push_back(i);
  if (is_xrc())
    for (const uint32_t i : consuming_) peer.pools_.want(plan_[i].request.srq);
}

void Endpoint::run_program() {
  if (in_error()) return;
  const Instant now = events_.now();
  // As many receives as the peer will consume, and no more: one that is consumed in vain would be missed.
  const auto& wanted = peer_->consuming_;
  while (!is_xrc() && receives_posted_ < wanted.size() && now >= next_receives_) {
    for (uint32_t i = 0; i < config_.receives_at_once && receives_posted_ < wanted.size(); ++i) {
      if (peer_->plan_[wanted[receives_posted_]].starved) {
        next_receives_ = engine::kNoDeadline;
        break;
      }
      ++receives_posted_;
    }
    if (config_.receive_lag.count() > 0)
      next_receives_ =
          std::max(next_receives_, now + base::Duration(static_cast<int64_t>(random_.between(
                                             1, static_cast<uint64_t>(config_.receive_lag.count())))));
  }
  while (posted_ < plan_.size() && !requester_.full() && !requester_.failed() && now >= next_post_) {
    const Planned& planned = plan_[posted_];
    if (planned.counts) ++peer_counter_->attempts;
    results_[posted_ % results_.size()].assign(planned.request.fetches() ? planned.request.length : 0,
                                               std::byte{0xdd});
    requester_.post(planned.request);
    ++posted_;
    if (config_.pause.count() > 0 && random_.percent(20))
      next_post_ = now + base::Duration(static_cast<int64_t>(
                             random_.between(1, static_cast<uint64_t>(config_.pause.count()))));
  }
}

Instant Endpoint::next_deadline() const {
  if (in_error()) return engine::kNoDeadline;
  Instant next = requester_.next_deadline();
  const Instant now = events_.now();
  if (posted_ < plan_.size() && !requester_.full() && now < next_post_) next = std::min(next, next_post_);
  if (!is_xrc() && receives_posted_ < peer_->consuming_.size()) next = std::min(next, next_receives_);
  return next;
}

bool Endpoint::gather(uint32_t number, uint64_t offset, std::span<std::byte> into) {
  const Planned& planned = plan_[number];
  if (number < ended_ || number >= posted_ || offset + into.size() > planned.request.length)
    oracle_.wrong(
        fmt::format("{}: bytes {}+{} of request {} were wanted", name(), offset, into.size(), number));
  if (offset + into.size() > planned.unreadable_from) return false;
  fill_pattern(planned.pattern, offset, into);
  return true;
}

bool Endpoint::scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from, engine::Tail tail) {
  const Planned& planned = plan_[number];
  if (number != ended_ || offset + from.size() > planned.request.length) {
    oracle_.wrong(fmt::format("{}: bytes {}+{} came for request {}", name(), offset, from.size(), number));
    return false;
  }
  if ((tail == engine::Tail::kLast) != (offset + from.size() == planned.request.length))
    oracle_.wrong(fmt::format("{}: request {}: the tail isn't placed as such", name(), number));
  if (planned.unwritable) return false;
  std::ranges::copy(from, results_[number % results_.size()].begin() + static_cast<ptrdiff_t>(offset));
  return true;
}

size_t Endpoint::scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                              engine::MorePayloads& payloads) {
  if (plan_[number].unwritable) return 0;
  size_t count = 0;
  for (; count < most; ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    if (payload.size() != each || !scatter(number, offset + count * each, payload, engine::Tail::kAnyOrder))
      oracle_.wrong(fmt::format("{}: request {} was answered by too much", name(), number));
  }
  return count;
}

const std::byte* Endpoint::in_place(uint32_t number, uint64_t offset, size_t length) {
  lent_.resize(length);
  return gather(number, offset, lent_) ? lent_.data() : nullptr;
}

void Endpoint::ended(uint32_t number, RequestStatus status) {
  journal_.add(uint64_t{number} << 8 | static_cast<uint64_t>(status));
  journal_.say(events_.now(), fmt::format("{} request {}: {}", name(), number, name_of(status)));
  if (number != ended_ || number >= posted_ || in_error()) {
    oracle_.wrong(fmt::format("{}: request {} ended, but {} was next", name(), number, ended_));
    return;
  }
  ++ended_;
  finished_at_ = events_.now();
  const RequestStatus provoked = plan_[number].provoked;
  if (status == RequestStatus::kSuccess) {
    ++succeeded_;
    if (provoked != RequestStatus::kSuccess)
      oracle_.wrong(fmt::format("{}: request {} succeeded instead of {}", name(), number, name_of(provoked)));
    check_answer(number);
    return;
  }
  trouble_ = Trouble::kOwnRequest;
  if (status == provoked) return;
  if (status == RequestStatus::kRetryExceeded && may_be_given_up(number)) return;
  oracle_.wrong(fmt::format("{}: request {} ended with {} instead of {}", name(), number, name_of(status),
                            name_of(provoked)));
}

// Is the peer gone, or was it out of reach for long?
bool Endpoint::may_be_given_up(uint32_t number) const {
  if (excused_ || peer_->excused_) return true;
  switch (peer_->trouble_) {
    case Trouble::kNone:
      return false;
    case Trouble::kOwnRequest:
    case Trouble::kVanished:
      return true;
    case Trouble::kPeersRequest:
      // It is in ERR for a request of ours. What that one says must reach us; but a READ before it can't be
      // answered again by a queue pair in ERR.
      return plan_[number].request.kind == Request::Kind::kRead &&
             plan_[number].provoked == RequestStatus::kSuccess;
  }
  return false;
}

void Endpoint::check_answer(uint32_t number) {
  const Planned& planned = plan_[number];
  const auto& result = results_[number % results_.size()];
  if (planned.counts) {
    uint64_t before = 0;
    std::memcpy(&before, result.data(), sizeof before);
    ++peer_counter_->successes;
    if (!peer_counter_->seen.insert(before).second)
      oracle_.wrong(
          fmt::format("{}: request {} saw the counter at {}, as another one did", name(), number, before));
  } else if (planned.from_read_only
                 ? !is_pattern(peer_->read_only_pattern_, planned.request.address - region::kAddress, result)
                 : !std::ranges::equal(result, planned.answer)) {
    oracle_.wrong(fmt::format("{}: request {} brought wrong bytes", name(), number));
  }
}

void Endpoint::judge() {
  if (trouble_ == Trouble::kVanished) return;
  if (!finished())
    oracle_.wrong(fmt::format("{}: stalled, {} of {} requests ended", name(), ended_, plan_.size()));
  const auto told = [&](uint32_t count) {
    return static_cast<size_t>(std::ranges::lower_bound(consuming_, count) - consuming_.begin());
  };
  if (peer_->trouble_ != Trouble::kVanished && peer_->consumed_ < told(succeeded_))
    oracle_.wrong(
        fmt::format("{}: {} messages succeeded, {} arrived", name(), told(succeeded_), peer_->consumed_));
  check_memory();
}

// The region after all requests of the peer's, carried out by hand in their order.
void Endpoint::check_memory() {
  std::vector<std::byte> model(data_.size());
  std::vector<bool> unknown(data_.size());
  fill_pattern(data_pattern_, 0, model);
  for (uint32_t i = 0; i < peer_->posted_; ++i) {
    const Planned& planned = peer_->plan_[i];
    const Request& request = planned.request;
    if (region_of(request.key) != region::kData || request.kind == Request::Kind::kRead ||
        request.kind == Request::Kind::kSend)
      continue;
    const uint64_t offset = request.address - region::kAddress;
    if (offset + request.length > model.size()) continue;
    if (i >= peer_->succeeded_) {
      for (uint64_t at = 0; at < request.length; ++at) unknown[offset + at] = true;
    } else if (request.kind == Request::Kind::kWrite) {
      fill_pattern(planned.pattern, 0, std::span(model).subspan(offset, request.length));
    } else {
      uint64_t value = 0;
      std::memcpy(&value, model.data() + offset, sizeof value);
      if (request.kind == Request::Kind::kFetchAdd) {
        value += request.compare_add;
      } else if (value == request.compare_add) {
        value = request.swap;
      }
      std::memcpy(model.data() + offset, &value, sizeof value);
    }
  }
  for (size_t at = 0; at < model.size(); ++at)
    if (model[at] != data_[at] && !unknown[at])
      return oracle_.wrong(fmt::format("{}: wrong byte at {} of its memory", name(), at));
}

}  // namespace verbena::sim
