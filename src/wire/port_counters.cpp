// What the port counts, and how tools see it.
#include "wire/port.hpp"

namespace verbena::wire {
namespace {

// Copied now and then only, lest every packet cost a line of shared memory.
constexpr base::Duration kBetween = base::milliseconds(20);

}  // namespace

void Port::account(const engine::RcRequester::Counters& now, engine::RcRequester::Counters& told) {
  const auto add = [](std::atomic<uint64_t>& total, uint64_t counted, uint64_t& before) {
    if (counted == before) return;
    total.fetch_add(counted - before, std::memory_order_relaxed);
    before = counted;
  };
  add(counters_.retransmitted, now.retransmitted, told.retransmitted);
  add(counters_.timeouts, now.timeouts, told.timeouts);
  add(counters_.sequence_naks, now.sequence_naks, told.sequence_naks);
  add(counters_.rnr_naks, now.rnr_naks, told.rnr_naks);
  add(counters_.implied_losses, now.implied_losses, told.implied_losses);
}

// Once after work was done, then not before more was.
void Port::publish_counters(base::Instant now) {
  const uint64_t work =
      counters_.packets + transmitter_.counters().packets + lanes_.counters().sent + lanes_.counters().lost;
  const base::Instant due{show_at_.load(std::memory_order_relaxed)};
  if (work == work_shown_) return show_at_.store(INT64_MAX, std::memory_order_relaxed);
  if (due == base::Instant{INT64_MAX}) return show_at_.store((now + kBetween).ns, std::memory_order_relaxed);
  if (now < due) return;
  work_shown_ = work;
  show_at_.store(INT64_MAX, std::memory_order_relaxed);
  unsigned place = 0;
  const auto show = [&](std::string_view name, uint64_t value) {
    environment_.shown->set(place++, name, value);
  };
  link_->visit_counters(show);
  show("send_lost", transmitter_.counters().lost_packets);
  show("retransmitted", counters_.retransmitted.load(std::memory_order_relaxed));
  show("timeouts", counters_.timeouts.load(std::memory_order_relaxed));
  show("sequence_naks", counters_.sequence_naks.load(std::memory_order_relaxed));
  show("rnr_naks", counters_.rnr_naks.load(std::memory_order_relaxed));
  show("implied_losses", counters_.implied_losses.load(std::memory_order_relaxed));
  show("lane_sent", lanes_.counters().sent);
  show("lane_lost", lanes_.counters().lost);
  for (unsigned drop = 1; drop < static_cast<unsigned>(Drop::kCount); ++drop) {
    constexpr std::string_view kDrop = "drop_";
    std::string name(kDrop);
    name += name_of(static_cast<Drop>(drop));
    show(name, counters_.drops[drop]);
  }
}

}  // namespace verbena::wire
