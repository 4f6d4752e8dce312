#include "verbs/queue_pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "verbs/device_limits.hpp"
#include "verbs/explain_failure.hpp"
#include "verbs/process.hpp"
#include "verbs/qp_transitions.hpp"

namespace verbena::verbs {
namespace {

constexpr uint32_t kMaxInline = 2048;
constexpr base::Duration kUntilRoom = base::milliseconds(5);

base::Result<void> check_caps(ibv_qp_cap caps, bool shares_receives) {
  if (shares_receives) caps.max_recv_wr = caps.max_recv_sge = 0;  // they don't count then
  const auto most = [](const char* name, uint32_t asked, int limit) -> base::Result<void> {
    if (asked > static_cast<uint32_t>(limit))
      return base::fail(EINVAL, fmt::format("{} = {} is more than the device has ({})", name, asked, limit));
    return {};
  };
  for (auto result :
       {most("max_send_wr", caps.max_send_wr, kMaxQpWr), most("max_recv_wr", caps.max_recv_wr, kMaxQpWr),
        most("max_send_sge", caps.max_send_sge, kMaxSge), most("max_recv_sge", caps.max_recv_sge, kMaxSge),
        most("max_inline_data", caps.max_inline_data, kMaxInline)})
    if (!result) return result;
  return {};
}

}  // namespace

QueuePair::QueuePair(Process& process, Config config, base::Qpn number)
    : process_(process),
      config_(std::move(config)),
      number_(number),
      entry_(process.arena().qp(static_cast<uint16_t>(number.value))) {}

base::Result<std::shared_ptr<QueuePair>> QueuePair::create(Process& process, Config config) {
  if (auto ok = check_caps(config.caps, config.srq != nullptr || is_xrc(config.type)); !ok)
    return std::unexpected(ok.error());
  const auto index = process.claim_qp();
  if (!index) return std::unexpected(index.error());
  std::shared_ptr<QueuePair> made(
      new QueuePair(process, std::move(config), base::Qpn::make(process.slot(), *index)));
  const ibv_qp_cap& asked = made->config_.caps;
  if (!made->config_.srq && !is_xrc(made->config_.type)) {
    auto receive = ReceiveQueue::create(process.arena(), process.tables_heap(), made->entry_,
                                        asked.max_recv_wr, std::max(asked.max_recv_sge, 1u));
    if (!receive) return std::unexpected(receive.error());
    made->receive_ = std::move(*receive);
  }
  const SendLimits limits{.requests = asked.max_send_wr,
                          .pieces = std::max(asked.max_send_sge, 1u),
                          .inline_bytes = std::max(asked.max_inline_data, 64u)};
  auto storage =
      QueueMemory::make(made->config_.allocator, SendQueue::storage_size(limits), QueueUse::kSendQueue);
  if (!storage) return std::unexpected(storage.error());
  made->send_ = std::make_shared<SendQueue>(*made, made->config_.send_cq, process.pending(), limits,
                                            made->config_.signal_all, std::move(*storage));
  // Rounded up, as adapters do; never less than was asked for.
  made->caps_ = {.max_send_wr = made->send_->limits().requests,
                 .max_recv_wr = made->receive_ ? made->receive_->capacity() : 0,
                 .max_send_sge = limits.pieces,
                 .max_recv_sge = made->receive_ ? made->receive_->max_sge() : 0,
                 .max_inline_data = limits.inline_bytes};
  made->attributes_ = initial_attributes(made->caps_);
  ++made->config_.send_cq->users;
  made->config_.send_cq->slack += made->send_slack();
  ++made->config_.recv_cq->users;
  made->entry_.domain.set(made->config_.type == IBV_QPT_XRC_RECV ? made->config_.xrcd
                                                                 : made->config_.domain->handle());
  made->entry_.cq.set(made->config_.recv_cq->index());
  made->entry_.srq_plus_one.set(made->config_.srq ? made->config_.srq->index() + 1u : 0);
  if (made->config_.srq) made->config_.srq->join(made->number_);
  // A number used before goes on counting its lives: late packets and peers of the old ones stay strangers.
  made->incarnation_ = arena::QpWord::unpack(made->entry_.word.get()).incarnation + 1;
  process.arena().binding(*index).bound.set(0);
  process.arena().binding(*index).waiting.set(0);
  made->publish(IBV_QPS_RESET);
  process.publish_qp(*index, made.get());
  return made;
}

QueuePair::~QueuePair() {
  if (send_ != nullptr) destroy();
  process_.release_qp(static_cast<uint16_t>(number_.value));
}

void QueuePair::publish(ibv_qp_state state) {
  state_.store(state, std::memory_order_release);
  announce(state);
}

// What peers see. The word goes last; while it says "changing" nobody believes the rest.
void QueuePair::announce(ibv_qp_state state) {
  const uint32_t incarnation = incarnation_.load();
  ++version_;
  entry_.word.atomic().store(arena::QpWord{incarnation, version_, arena::QpWord::kChanging}.pack());
  const ibv_qp_attr& attr = attributes_.attr;
  for (int i = 0; i < 2; ++i) {
    uint64_t half = 0;
    std::memcpy(&half, peer_gid_.raw + 8 * i, sizeof half);
    entry_.peer_gid[i].set(half);
    entry_.own_gid[i].set(plan_.own_gid[i]);
  }
  entry_.peer_qpn.set(attr.dest_qp_num);
  entry_.rq_psn.set(attr.rq_psn);
  entry_.access.set(attr.qp_access_flags);
  entry_.reads.set(attr.max_dest_rd_atomic);
  entry_.type_and_rnr.set(static_cast<uint32_t>(config_.type) << 8 | attr.min_rnr_timer);
  entry_.ring_at.set(ring_.offset);
  entry_.ring_id.set(ring_.id);
  entry_.ring_slots.set(ring_.shape.slots);
  entry_.ring_payload.set(ring_.shape.payload);
  entry_.word.release(arena::QpWord{incarnation, version_, static_cast<uint8_t>(state)}.pack());
}

RetryRules QueuePair::rules() const {
  const ibv_qp_attr& attr = attributes_.attr;
  // Without answers there is nothing to wait for but room in a peer's ring.
  const bool answered = config_.type != IBV_QPT_UC && config_.type != IBV_QPT_UD;
  return {.timeout = answered ? ack_timeout(attr.timeout) : kUntilRoom,
          .retries = answered ? attr.retry_cnt : 7u,
          .rnr_retries = attr.rnr_retry,
          .fetches = attr.max_rd_atomic,
          .qkey = attr.qkey};
}

base::Result<void> QueuePair::modify(const ibv_qp_attr& wanted, int mask) {
  const std::lock_guard lock(modify_mutex_);
  mask = heeded_mask(config_.type, mask);
  conclude_expected_failure();
  follow_migration();
  if (state() == IBV_QPS_SQD) attributes_.attr.sq_draining = send_->idle() ? 0 : 1;
  if (auto ok = check_modify(config_.type, attributes_, wanted, mask, config_.paths->ports()); !ok)
    return base::fail(ok.error().code, fmt::format("QP 0x{:06x}: {}", number_.value, ok.error().sentence));
  const ibv_qp_state before = state();
  const ibv_qp_state after = (mask & IBV_QP_STATE) != 0 ? wanted.qp_state : before;

  QpAttributes changed = attributes_;
  apply_modify(config_.type, changed, wanted, mask);
  std::optional<AddressVector> alternate;
  if ((mask & IBV_QP_ALT_PATH) != 0) {
    auto resolved = config_.paths->resolve(changed.attr.alt_ah_attr);
    if (!resolved) return std::unexpected(resolved.error());
    alternate = *resolved;
  }
  if (before == IBV_QPS_INIT && after == IBV_QPS_RTR)
    if (auto connected = connect(changed.attr); !connected) return connected;
  attributes_ = changed;
  if ((mask & IBV_QP_AV) != 0) peer_gid_ = attributes_.attr.ah_attr.grh.dgid;
  if (alternate && plan_.path)
    plan_.path->load_alternate({*alternate, ack_timeout(attributes_.attr.alt_timeout)});
  switch (after) {
    case IBV_QPS_RESET:
      enter_reset();
      break;
    case IBV_QPS_ERR:
      enter_error();
      break;
    case IBV_QPS_RTS:
      publish(after);
      if (before == IBV_QPS_RTR) plan_.path->begin(attributes_.attr.sq_psn);
      send_->set_rules(rules());
      if (before == IBV_QPS_SQE) send_->resume();
      send_->set_state(SendState::kRuns);
      break;
    case IBV_QPS_SQD:
      publish(after);
      if (before == IBV_QPS_SQD) break;
      tells_drained_ = attributes_.attr.en_sqd_async_notify != 0;
      send_->set_state(SendState::kHolds);
      if (send_->idle()) on_drained();
      break;
    default:
      publish(after);
      break;
  }
  change_migration(mask, wanted);
  return {};
}

base::Result<void> QueuePair::connect(const ibv_qp_attr& attributes) {
  auto plan = config_.paths->plan({.type = config_.type,
                                   .own = number_,
                                   .incarnation = incarnation(),
                                   .domain = config_.domain->handle(),
                                   .attributes = attributes});
  if (!plan) return std::unexpected(plan.error());
  ring_ = {};
  if (plan->peer_known) {
    const auto ring = config_.recv_cq->inbound(plan->peer_slot, plan->peer_epoch);
    if (!ring) return std::unexpected(ring.error());
    ring_ = *ring;
  }
  plan_ = std::move(*plan);
  migrations_ = 0;
  if (auto* migration = plan_.path->migration())
    migration->set_listener([this](ibv_event_type event) { raise(event); });
  peer_slot_.store(plan_.peer_known ? plan_.peer_slot.value : 0);
  send_->set_path(plan_.path.get(), plan_.pipelined);
  plan_.path->serve(send_);
  return {};
}

void QueuePair::enter_reset() {
  config_.recv_cq->settle([] {});  // what was delivered before is placed, though nobody will be told
  publish(IBV_QPS_RESET);          // peers stop here
  send_->set_state(SendState::kRefuses);
  incarnation_.fetch_add(1);
  send_->set_path(nullptr);
  plan_ = {};
  peer_gid_ = {};
  ring_ = {};
  // What was delivered is dropped with the rest, as an adapter forgets a queue pair that is reset.
  config_.recv_cq->settle([&] {
    peer_slot_.store(0);
    if (receive_) {
      const std::lock_guard posts(receive_->lock);  // one that saw the state before ends first
      receive_->clear();
    }
    flushed_.store(0, std::memory_order_relaxed);
    failing_ = false;
    established_ = false;
    failure_ = engine::Verdict::kDone;
    failure_completed_ = false;
    config_.recv_cq->forget_locked(number_.value);
  });
  if (config_.send_cq != config_.recv_cq)
    config_.send_cq->settle([&] { config_.send_cq->forget_locked(number_.value); });
  send_->clear();
  if (config_.srq) config_.srq->take_back_from(number_);
  auto& binding = process_.arena().binding(static_cast<uint16_t>(number_.value));
  binding.bound.atomic().store(0);
  binding.waiting.atomic().store(0);
  publish(IBV_QPS_RESET);
}

// Peers stop delivering, then what they had delivered counts, then the rest is flushed.
void QueuePair::enter_error() {
  const bool was_ready = may_fail();
  announce(IBV_QPS_ERR);
  enter_state(attributes_, IBV_QPS_ERR);
  send_->set_state(SendState::kFlushes);
  config_.recv_cq->settle([&] {
    state_.store(IBV_QPS_ERR, std::memory_order_release);
    // Who posts looks at the state afterwards: either we see the receive, or they see the state.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (receive_) flush_receives_locked();
  });
  if (!config_.srq) return;
  // What waits in a shared queue waits on for the others (IBA 10.2.9.4).
  config_.srq->take_back_from(number_);
  if (was_ready) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

// IBA 10.3.1.6: without a connection to keep in step a failed send costs the send queue only, until the
// program takes it back to RTS.
void QueuePair::enter_send_error() {
  if (config_.type == IBV_QPT_RC || is_xrc(config_.type)) return enter_error();
  enter_state(attributes_, IBV_QPS_SQE);
  publish(IBV_QPS_SQE);
  send_->set_state(SendState::kFlushes);
}

void QueuePair::flush_receives_locked() {
  while (!receive_->empty()) {
    ibv_wc completion{};
    completion.wr_id = receive_->front().wr_id;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.opcode = IBV_WC_RECV;
    completion.qp_num = number_.value;
    receive_->pop();
    flushed_.fetch_add(1, std::memory_order_relaxed);
    config_.recv_cq->push_locked(completion, true);
  }
}

void QueuePair::query(ibv_qp_attr& attributes) {
  const std::lock_guard lock(modify_mutex_);
  conclude_expected_failure();
  follow_migration();
  show_attributes(attributes_, attributes);
  attributes.sq_draining = state() == IBV_QPS_SQD && !send_->idle() ? 1 : 0;
}

int QueuePair::post_send(ibv_send_wr* requests, ibv_send_wr** bad, bool all) {
  ibv_send_wr* refused = nullptr;
  const int error = send_->post(requests, &refused, {.all = all});
  if (error != 0) [[unlikely]] {
    if (bad != nullptr) *bad = refused;
    explain_refused_send(*this, *refused, error);
  }
  return error;
}

int QueuePair::bind_window(ibv_mw& window, const ibv_mw_bind& bind, uint32_t key) {
  ibv_send_wr request{};
  request.wr_id = bind.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind.send_flags;
  request.bind_mw = {.mw = &window, .rkey = key, .bind_info = bind.bind_info};
  const int error = send_->post(&request, nullptr, {.windows = IBV_MW_TYPE_1});
  if (error != 0) explain_refused_send(*this, request, error);
  return error;
}

int QueuePair::post_recv(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  int error = 0;
  if (!receive_) {
    if (bad != nullptr) *bad = requests;
    explain_refused_receive(*this, *requests, EOPNOTSUPP);
    return EINVAL;
  }
  {
    const std::lock_guard lock(receive_->lock);
    for (ibv_recv_wr* next = requests; next != nullptr; next = next->next) {
      if (state() == IBV_QPS_RESET)
        error = EINVAL;
      else if (flushed_.load(std::memory_order_relaxed) >= receive_->capacity())
        error = ENOMEM;  // in ERR each is flushed at once: they must not overflow the completion queue
      else
        error = receive_->post(*next, config_.domain->handle());
      if (error != 0) {
        if (bad != nullptr) *bad = next;
        explain_refused_receive(*this, *next, error);
        break;
      }
    }
  }
  // Who waits for a receive says so, then looks once more, as does who flushes them; we post, then look for
  // both.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state() == IBV_QPS_ERR) [[unlikely]] {
    config_.recv_cq->settle([&] {
      if (state() == IBV_QPS_ERR) flush_receives_locked();
    });
  } else {
    tell_waiting();
  }
  return error;
}

void QueuePair::tell_waiting() {
  if (process_.arena().binding(static_cast<uint16_t>(number_.value)).waiting.get() == 0) [[likely]]
    return;
  const std::lock_guard lock(modify_mutex_);
  if (plan_.path) plan_.path->tell_posted();
}

void QueuePair::destroy() {
  const std::lock_guard lock(modify_mutex_);
  if (std::exchange(destroyed_, true)) return;
  enter_reset();
  process_.publish_qp(static_cast<uint16_t>(number_.value), nullptr);
  // A poller that found us in the table is done with us when it gives this lock back.
  config_.recv_cq->settle([] {});
  if (config_.send_cq != config_.recv_cq) config_.send_cq->settle([] {});
  send_->close();
  process_.windows().forget(number_);
  config_.send_cq->slack -= send_slack();
  --config_.send_cq->users;
  --config_.recv_cq->users;
  if (config_.srq) config_.srq->leave(number_);
}

void QueuePair::raise(ibv_event_type type) {
  const uint64_t element =
      config_.element != nullptr ? reinterpret_cast<uint64_t>(config_.element) : number_.value;
  if (config_.events != nullptr) config_.events->push({type, element});
}

void QueuePair::on_drained() {
  if (tells_drained_.exchange(false)) raise(IBV_EVENT_SQ_DRAINED);
}

}  // namespace verbena::verbs
