#include "sim/measure.hpp"

#include <algorithm>

#include "engine/timers.hpp"
#include "sim/run.hpp"

namespace verbena::sim {
namespace {

Scenario scenario_of(const StreamConfig& config) {
  Scenario scenario;
  scenario.seed = config.seed;
  scenario.network = config.network;
  scenario.host.inbox_bytes = config.inbox_bytes;
  scenario.hosts = config.senders + 1;
  for (uint32_t i = 0; i < config.connections; ++i) {
    ConnectionPlan connection;
    connection.hosts[0] = 1 + i % config.senders;
    for (unsigned side = 0; side < 2; ++side) {
      EndpointConfig& end = connection.ends[side];
      end.qpn = base::Qpn{0x010000 + i * 2 + side};
      end.peer_qpn = base::Qpn{0x010000 + i * 2 + 1 - side};
      end.mtu = config.mtu;
      end.capacity = config.capacity;
      end.fetches = 16;
      end.timeout = engine::ack_timeout(18);
      end.data_bytes = config.request_bytes + region::kCellBytes;
      end.receives_at_once = static_cast<uint32_t>(config.requests);
      connection.plans[side].requests = 0;
    }
    // The data always goes to host 0; a READ is asked for by who gets it.
    PlanConfig& plan = connection.plans[config.kind == engine::Request::Kind::kRead ? 1 : 0];
    plan.requests = config.requests;
    plan.only = config.kind;
    plan.longest = config.request_bytes;
    scenario.connections.push_back(connection);
  }
  return scenario;
}

}  // namespace

StreamResult measure_stream(const StreamConfig& config) {
  World world(scenario_of(config));
  world.run({.events = 1'000'000'000});
  StreamResult result{.wrong = world.oracle().what(), .datagrams = world.network().counters().sent};
  const double bits = static_cast<double>(config.request_bytes * config.requests) * 8;
  double longest = 0;
  for (const auto& host : world.hosts()) {
    for (const auto& endpoint : host->endpoints()) {
      if (endpoint->planned() == 0) continue;
      const auto took = static_cast<double>((endpoint->finished_at() - EventQueue::kStart).count());
      result.of_connections.push_back(bits / took);
      longest = std::max(longest, took);
      result.retransmitted += endpoint->requester().counters().retransmitted;
      result.timeouts += endpoint->requester().counters().timeouts;
    }
  }
  result.gigabits_per_second = bits * config.connections / longest;
  return result;
}

}  // namespace verbena::sim
