#include "sim/run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/unreliable.hpp"

namespace verbena::sim {

using base::Instant;

World::World(const Scenario& scenario, size_t trace_lines)
    : journal_(trace_lines),
      random_(scenario.seed ^ 0x5eed),
      network_(events_, journal_, random_.fork(), scenario.network) {
  for (uint32_t i = 0; i < scenario.hosts; ++i)
    hosts_.push_back(
        std::make_unique<Host>(events_, network_, journal_, oracle_, scenario.host, random_.fork()));
  for (const auto& connection : scenario.connections) {
    Endpoint* ends[2];
    for (unsigned side = 0; side < 2; ++side)
      ends[side] = &hosts_[connection.hosts[side]]->add(connection.ends[side], connection.hosts[1 - side]);
    for (unsigned side = 0; side < 2; ++side) {
      const Endpoint& peer = *ends[1 - side];
      PlanConfig plan = connection.plans[side];
      plan.data_bytes = peer.config().data_bytes;
      plan.data_pattern = peer.data_pattern();
      plan.read_only_pattern = peer.read_only_pattern();
      plan.key_base = peer.key_base();
      plan.counter_key = peer.key_base() + region::kCounter;
      plan.mtu = peer.config().mtu;
      if (peer.config().service == roce::Service::kXrc) plan.queues = scenario.host.pools.count;
      ends[side]->begin(*ends[1 - side], hosts_[connection.hosts[1 - side]]->counter(),
                        plan.requests > 0 ? make_plan(plan, random_.fork()) : std::vector<Planned>{});
    }
  }
  for (const auto& mishap : scenario.mishaps) events_.after(mishap.after, [this, mishap] { befall(mishap); });
  for (const auto& host : hosts_) host->wake();
}

void World::befall(const Mishap& mishap) {
  Host& host = *hosts_[mishap.host];
  const Instant until = events_.now() + mishap.lasts;
  const char* what = "crashes";
  switch (mishap.kind) {
    case Mishap::Kind::kPart:
      what = "is parted from its neighbour";
      network_.part(mishap.host, mishap.other, until);
      break;
    case Mishap::Kind::kCrash:
      host.crash();
      break;
    case Mishap::Kind::kStop:
      what = "stops";
      host.stop(until);
      break;
  }
  journal_.say(events_.now(),
               fmt::format("host {} {} for {} us", mishap.host, what, mishap.lasts.count() / 1000));
  if (mishap.excuses)
    for (const auto& endpoint : host.endpoints()) endpoint->excuse();
}

bool World::finished() const {
  return std::ranges::all_of(hosts_, [](const auto& host) {
    return std::ranges::all_of(host->endpoints(), [](const auto& endpoint) { return endpoint->finished(); });
  });
}

void World::run(const RunLimits& limits) {
  const Instant end = EventQueue::kStart + limits.longest;
  while (!events_.empty() && oracle_.content() && events_.now() < end && events_.happened() < limits.events)
    events_.step();
  if (!oracle_.content()) return;
  for (const auto& host : hosts_) host->judge();
  if (oracle_.content() && !events_.empty())
    oracle_.wrong(fmt::format("it never comes to rest: {} events in {} ms", events_.happened(),
                              (events_.now() - EventQueue::kStart).count() / 1'000'000));
}

Outcome run_scenario(const Scenario& scenario, const RunLimits& limits) {
  World world(scenario, limits.trace_lines);
  world.run(limits);
  Outcome outcome{.wrong = world.oracle().what(),
                  .digest = world.journal().digest(),
                  .events = world.events().happened(),
                  .datagrams = world.network().counters().sent};
  for (const auto& host : world.hosts())
    for (const auto& endpoint : host->endpoints())
      outcome.took = std::max(outcome.took, endpoint->finished_at() - EventQueue::kStart);
  outcome.trace.assign(world.journal().lines().begin(), world.journal().lines().end());
  return outcome;
}

Outcome run_seed(uint64_t seed, const RunLimits& limits) {
  Outcome outcome = run_scenario(draw_scenario(seed), limits);
  if (!outcome.wrong.empty()) return outcome;
  const UnreliableOutcome unreliable = run_unreliable_seed(seed, limits);
  if (!unreliable.wrong.empty()) outcome.wrong = "UC and UD: " + unreliable.wrong;
  outcome.digest = outcome.digest * 31 + unreliable.digest;
  outcome.events += unreliable.events;
  outcome.datagrams += unreliable.datagrams;
  outcome.trace.insert(outcome.trace.end(), unreliable.trace.begin(), unreliable.trace.end());
  return outcome;
}

}  // namespace verbena::sim
