#include "wire/port.hpp"

#include <sched.h>

#include <algorithm>

#include "roce/codec.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"
#include "verbs/access_burst.hpp"
#include "verbs/own_memory.hpp"
#include "verbs/queue_owner.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::wire {

namespace {

constexpr size_t kReceiveBudget = 256;  // packets, then others have their turn
// As many as wait in a socket when much is under way. Timers don't wait for more: who sends to us without end
// must not stop them.
constexpr size_t kMostPassed = 16 * kReceiveBudget;

}  // namespace

Port::Port(std::unique_ptr<net::Link> link, base::Slot slot, Environment environment)
    : link_(std::move(link)),
      slot_(slot),
      environment_(std::move(environment)),
      connections_(1u << 16),
      transmitter_(*link_),
      lanes_(environment_.own, slot, environment_.meet) {}

Port::~Port() = default;

void Port::add(Connection& connection) {
  {
    const std::lock_guard lock(receiving_);
    connections_[connection.own().value & 0xffff] = &connection;
    count_.fetch_add(1);
    // For a datagram's GRH.
    if (connection.route() == nullptr && !std::exchange(tells_hops_, true)) link_->tell_hops();
    if (const net::Route* route = connection.route(); route != nullptr && !route->recognised && knows(*route))
      connection.recognise();
  }
  environment_.wake();  // the helper thread watches the socket from now on
}

void Port::remove(Connection& connection) {
  const std::lock_guard lock(receiving_);
  auto& place = connections_[connection.own().value & 0xffff];
  if (place == &connection) place = nullptr;
  std::erase(dirty_, &connection);
  if (std::erase(owing_, &connection) != 0) {
    connection.acknowledge(base::now());
    send_what_waits();
  }
  count_.fetch_sub(1);
}

// Once: a peer that sends on and on would never be answered. By a helper only where posts follow: else it has
// to come again for each, and the peer waits.
bool Port::put_off(Connection& connection) {
  if (!may_put_off_ || connection.owes_acknowledgement() || ending_.load()) return false;
  if (stands_in_ && connection.refrain_ > 0) {
    --connection.refrain_;
    return false;
  }
  connection.for_a_post_ = stands_in_;
  if (owing_.empty()) owing_since_.store(now_.ns, std::memory_order_relaxed);
  connection.owes_.store(true, std::memory_order_relaxed);
  owing_.push_back(&connection);
  return true;
}

bool Port::owes() {
  std::erase_if(owing_, [](Connection* connection) {
    const bool taken_along = !connection->owes_acknowledgement();
    if (taken_along) connection->refrain_ = 0;
    return taken_along;
  });
  if (!owing_.empty()) return true;
  owing_since_.store(INT64_MAX, std::memory_order_relaxed);
  return false;
}

void Port::pay(std::vector<Connection*>& owing, base::Instant now) {
  constexpr unsigned kRefrain = 16;
  for (Connection* connection : owing) {
    if (connection->for_a_post_ && connection->owes_acknowledgement()) connection->refrain_ = kRefrain;
    connection->acknowledge(now);
    settle(*connection);
  }
  owing.clear();
  if (owing_.empty()) owing_since_.store(INT64_MAX, std::memory_order_relaxed);
}

void Port::acknowledge_all() {
  ending_.store(true);
  const std::unique_lock lock(receiving_, std::try_to_lock);
  if (!lock) return;  // somebody drives, and may be this very thread: an ending program doesn't wait
  pay(owing_, base::now());
  send_what_waits();
}

bool Port::drive(base::Instant now, Driver driver) {
  if (driver == Driver::kPoller) driven_at_.store(now.ns, std::memory_order_relaxed);
  bool worked = false;
  {
    const verbs::HeldBells bells;  // rung when all below is sent
    const std::unique_lock lock(receiving_, std::try_to_lock);
    if (!lock) {
      // Whoever holds it may wait for this very core.
      ::sched_yield();
      return false;
    }
    const verbs::AccessBurst memory;
    now_ = now;
    const size_t near = lanes_.receive(
        kReceiveBudget, [&](const auto& header, const auto& payload) { take_near(header, payload); });
    worked = near > 0;
    behind_ = false;  // till the socket is looked at
    if (look_at_socket(near)) worked |= take_in(now) > 0;
    // Most turns of those who spin find nothing at all. A stray may have come before (take_stray).
    if (owes() || worked || !dirty_.empty() || something_due(now)) send_due(now, driver);
    if (environment_.shown != nullptr) publish_counters(now);
  }
  if (worked)
    verbs::StandingProofs::go_on();
  else if (driver == Driver::kPoller)
    verbs::StandingProofs::renew();
  return conclude_failures() || worked;
}

void Port::send_due(base::Instant now, Driver driver) {
  may_put_off_ = driver != Driver::kHelper;
  stands_in_ = driver == Driver::kStandIn;
  owed_.swap(owing_);
  for (Connection* connection : dirty_) {
    connection->dirty_ = false;
    connection->go_on(now);
  }
  dirty_.clear();
  pay(owed_, now);
  run_scheduled(now);
  may_put_off_ = false;
  if (now >= acquaintances_.next_due()) greet(now);
  send_what_waits();
}

void Port::send_what_waits() {
  if (!unsent_.load(std::memory_order_relaxed)) return;
  const std::lock_guard sending(sending_);
  transmitter_.flush();
  unsent_.store(false, std::memory_order_relaxed);
}

bool Port::conclude_failures() {
  if (!failed_.load(std::memory_order_relaxed)) return false;
  std::vector<verbs::SendQueue::Failure> failures;
  {
    const std::lock_guard lock(failures_lock_);
    failures.swap(failures_);
    failed_.store(false, std::memory_order_relaxed);
  }
  for (auto& failure : failures) failure.queue_pair->fail_as_requester(failure.life);
  return !failures.empty();
}

// A timer may be due only because nobody has looked for a while: then what it waits for may be here, behind
// what is handed over first. With a thousand queue pairs that is more than a turn takes in.
size_t Port::take_in(base::Instant now) {
  size_t taken = 0;
  size_t more = 0;
  do {
    more = link_->receive(*this, kReceiveBudget - taken);
    taken += more;
  } while (more > 0 && taken < kReceiveBudget && scheduled_.load(std::memory_order_relaxed) <= now.ns);
  passed_ = taken < kReceiveBudget ? 0 : passed_ + taken;
  behind_ = passed_ > 0 && passed_ < kMostPassed;
  if (!behind_) passed_ = 0;
  link_due_.store(link_->next_deadline().value_or(base::Instant{INT64_MAX}).ns, std::memory_order_relaxed);
  return taken;
}

bool Port::something_due(base::Instant now) const {
  return scheduled_.load(std::memory_order_relaxed) <= now.ns || now >= acquaintances_.next_due() ||
         unsent_.load(std::memory_order_relaxed);
}

void Port::conclude_later(verbs::SendQueue::Failure failure) {
  if (!failure.queue_pair) return;
  const std::lock_guard lock(failures_lock_);
  failures_.push_back(std::move(failure));
  failed_.store(true, std::memory_order_relaxed);
}

// A look at the socket costs more than a datagram by lane. While those come it is looked at now and then.
bool Port::look_at_socket(size_t near) {
  constexpr unsigned kLately = 256;
  constexpr unsigned kEach = 8;
  if (near > 0)
    near_lately_ = kLately;
  else if (near_lately_ > 0)
    --near_lately_;
  return near_lately_ == 0 || ++round_ % kEach == 0;
}

void Port::greet(base::Instant now) {
  for (const auto& greeting : acquaintances_.due(now)) {
    const std::lock_guard sending(sending_);
    send_greeting({.from = own_number(), .transaction = greeting.transaction}, roce::kGeneralServicesQpn,
                  greeting.route);
  }
}

void Port::send_greeting(const roce::Greeting& greeting, base::Qpn to, const net::Route& route) {
  const auto space = transmitter_.space(roce::kGreetingBytes + roce::kIcrcBytes);
  roce::emit_greeting(greeting, to, space.first<roce::kGreetingBytes>());
  transmitter_.commit(route, roce::kGreetingBytes + roce::kIcrcBytes);
  unsent_.store(true, std::memory_order_relaxed);
}

void Port::schedule(Connection& connection, base::Instant due, base::Instant now) {
  // Mostly it is there already. Should it be taken out just now, go_on() will see why we came.
  if (due <= now ? connection.queued_.load(std::memory_order_relaxed)
                 : connection.timer_.load(std::memory_order_relaxed) <= due.ns)
    return;
  const auto index = static_cast<uint16_t>(connection.own().value);
  {
    const std::lock_guard lock(schedule_lock_);
    if (due <= now) {
      if (connection.queued_.exchange(true, std::memory_order_relaxed)) return;
      ready_.push_back(index);
      scheduled_.store(0, std::memory_order_relaxed);
    } else {
      // One that is there earlier asks again when it is due.
      if (connection.timer_.load(std::memory_order_relaxed) <= due.ns) return;
      connection.timer_.store(due.ns, std::memory_order_relaxed);
      timers_.push({due, index});
      if (due.ns < scheduled_.load(std::memory_order_relaxed))
        scheduled_.store(due.ns, std::memory_order_relaxed);
    }
  }
  if (due.ns < promised_.load(std::memory_order_relaxed)) environment_.wake();
}

base::Instant Port::next_due() {
  const std::lock_guard lock(schedule_lock_);
  if (!ready_.empty() || lanes_.waiting()) return {};
  const base::Instant others{
      std::min({acquaintances_.next_due().ns, link_due_.load(std::memory_order_relaxed),
                show_at_.load(std::memory_order_relaxed)})};
  return timers_.empty() ? others : std::min(timers_.top().due, others);
}

void Port::run_scheduled(base::Instant now) {
  if (scheduled_.load(std::memory_order_relaxed) > now.ns) return;
  due_.clear();
  {
    const std::lock_guard lock(schedule_lock_);
    due_.swap(ready_);
    for (const uint16_t index : due_)
      if (auto* connection = connections_[index]) connection->queued_.store(false, std::memory_order_relaxed);
    for (; !behind_ && !timers_.empty() && timers_.top().due <= now; timers_.pop()) {
      auto* connection = connections_[timers_.top().index];
      // A timer of a connection that was here before counts for nothing.
      if (connection == nullptr || connection->timer_.load(std::memory_order_relaxed) != timers_.top().due.ns)
        continue;
      connection->timer_.store(INT64_MAX, std::memory_order_relaxed);
      due_.push_back(timers_.top().index);
    }
    scheduled_.store(timers_.empty() ? INT64_MAX : timers_.top().due.ns, std::memory_order_relaxed);
  }
  for (const uint16_t index : due_)
    if (auto* connection = connections_[index]) connection->go_on(now);
}

}  // namespace verbena::wire
