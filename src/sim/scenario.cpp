#include "sim/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/timers.hpp"

namespace verbena::sim {

using base::Duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

Duration up_to(Random& random, Duration most) {
  return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
}

// The longest that a round trip takes when nothing is lost.
Duration round_trip(const Scenario& scenario) {
  Duration longest{};
  for (HostId host = 0; host < scenario.hosts; ++host) {
    const LineConfig& line = scenario.network.line(host);
    const auto& bad = line.impairment;
    const Link link(line.bits_per_second, 0);
    longest =
        std::max(longest, bad.delay + bad.jitter + bad.held_back + link.time_for(line.send_queue_bytes) +
                              link.time_for(line.receive_queue_bytes));
  }
  return 2 * (longest + scenario.host.poll_delay);
}

EndpointConfig draw_end(Random& random, const EndpointConfig& both) {
  EndpointConfig end = both;
  end.capacity = static_cast<uint32_t>(random.spread(1, 128));
  end.rnr_timer = static_cast<uint8_t>(random.between(1, 16));
  end.window_bytes = static_cast<uint32_t>(random.spread(16 << 10, 4 << 20));
  end.counts_credits = random.percent(70);
  if (random.percent(20)) end.busy = static_cast<uint32_t>(random.spread(100, 20'000));
  end.receives_at_once = static_cast<uint32_t>(random.spread(1, 64));
  if (random.percent(50)) end.receive_lag = Duration(static_cast<int64_t>(random.spread(1'000, 5'000'000)));
  if (random.percent(50)) end.pause = Duration(static_cast<int64_t>(random.spread(1'000, 5'000'000)));
  return end;
}

ConnectionPlan draw_connection(Random& random, const Scenario& scenario, uint32_t number, uint64_t budget) {
  ConnectionPlan connection;
  const auto first = static_cast<HostId>(random.below(scenario.hosts));
  connection.hosts[0] = first;
  connection.hosts[1] = static_cast<HostId>((first + random.between(1, scenario.hosts - 1)) % scenario.hosts);

  EndpointConfig both;
  both.mtu = 256u << random.below(5);
  both.fetches = static_cast<unsigned>(random.spread(1, 16));
  both.data_bytes = std::max<uint64_t>(random.spread(256, 8 << 10), std::min<uint64_t>(budget, 4 << 20));
  uint8_t code = 10;
  while (engine::ack_timeout(code) < 4 * round_trip(scenario) + milliseconds(4)) ++code;
  both.timeout = engine::ack_timeout(code);
  both.rnr_retries = random.percent(60) ? 7 : static_cast<unsigned>(random.below(7));
  base::Psn psns[2];
  for (auto& psn : psns)
    psn = base::Psn{} +
          static_cast<uint32_t>(random.percent(50) ? 0xffffff - random.below(200) : random.below(1 << 24));
  for (unsigned side = 0; side < 2; ++side) {
    EndpointConfig& end = connection.ends[side] = draw_end(random, both);
    end.qpn = base::Qpn{0x010000 + number * 2 + side};
    end.peer_qpn = base::Qpn{0x010000 + number * 2 + 1 - side};
    end.send_psn = psns[side];
    end.receive_psn = psns[1 - side];
    PlanConfig& plan = connection.plans[side];
    plan.requests = random.percent(20) ? 0 : random.spread(1, 100);
    plan.total_bytes = budget;
    plan.longest = random.spread(16, budget);
    plan.provokes = plan.requests > 0 && random.percent(10);
    plan.may_starve = both.rnr_retries < 7;
  }
  // With few RNR retries receives must be there before they are needed, unless that is what is provoked.
  if (both.rnr_retries < 7)
    for (auto& end : connection.ends) end.receive_lag = {};
  return connection;
}

std::vector<Mishap> draw_mishaps(Random& random, const Scenario& scenario) {
  std::vector<Mishap> mishaps;
  if (!random.percent(25)) return mishaps;
  const Duration patience = 8 * scenario.connections.front().ends[0].timeout;
  for (uint64_t count = random.between(1, 3); count > 0; --count) {
    Mishap mishap;
    mishap.kind = static_cast<Mishap::Kind>(random.below(3));
    mishap.after = Duration(static_cast<int64_t>(random.spread(1'000, 100'000'000)));
    mishap.host = static_cast<HostId>(random.below(scenario.hosts));
    mishap.other = static_cast<HostId>((mishap.host + 1) % scenario.hosts);
    mishap.excuses = random.percent(30) || mishap.kind == Mishap::Kind::kCrash;
    mishap.lasts = mishap.excuses ? patience * 2 : up_to(random, patience / 8);
    mishaps.push_back(mishap);
  }
  return mishaps;
}

// Requesters of XRC, most often all of one host, whose shared receive queues they use together. What they ask
// for goes one way only.
void add_xrc(Random& random, Scenario& scenario) {
  auto& pools = scenario.host.pools;
  pools.count = static_cast<uint32_t>(random.spread(1, 6));
  pools.at_once = static_cast<uint32_t>(random.spread(1, 64));
  if (random.percent(50)) pools.lag = Duration(static_cast<int64_t>(random.spread(1'000, 5'000'000)));
  const uint64_t requesters = random.spread(1, 6);
  const uint64_t budget = random.spread(64, 1 << 20) / requesters + 64;
  const auto target = static_cast<HostId>(random.below(scenario.hosts));
  const bool together = random.percent(70);
  for (uint64_t i = 0; i < requesters; ++i) {
    const auto number = static_cast<uint32_t>(scenario.connections.size());
    ConnectionPlan connection = draw_connection(random, scenario, number, budget);
    if (together) {
      connection.hosts[1] = target;
      connection.hosts[0] =
          static_cast<HostId>((target + random.between(1, scenario.hosts - 1)) % scenario.hosts);
    }
    for (auto& end : connection.ends) {
      end.service = roce::Service::kXrc;
      if (pools.lag.count() > 0) end.rnr_retries = 7;
    }
    connection.plans[0].may_starve = false;
    connection.plans[1].requests = 0;
    connection.plans[1].provokes = false;
    scenario.connections.push_back(connection);
  }
}

LineConfig draw_line(Random& random) {
  LineConfig line;
  line.bits_per_second = random.spread(100'000'000, 100'000'000'000);
  line.send_queue_bytes = random.spread(32 << 10, 4 << 20);
  line.receive_queue_bytes = random.spread(32 << 10, 4 << 20);
  auto& bad = line.impairment;
  bad.delay = Duration(static_cast<int64_t>(random.spread(1'000, 50'000'000)));
  if (random.percent(40)) bad.jitter = up_to(random, bad.delay);
  if (random.percent(70)) bad.lost = static_cast<uint32_t>(random.spread(100, 100'000));
  if (random.percent(30)) bad.doubled = static_cast<uint32_t>(random.spread(100, 50'000));
  if (random.percent(30)) bad.damaged = static_cast<uint32_t>(random.spread(100, 20'000));
  if (random.percent(30)) {
    bad.overtaken = static_cast<uint32_t>(random.spread(100, 50'000));
    bad.held_back = Duration(static_cast<int64_t>(random.spread(1'000, 20'000'000)));
  }
  return line;
}

}  // namespace

NetworkConfig draw_network(Random& random) { return {draw_line(random), {}}; }

Scenario draw_scenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.network = draw_network(random);
  scenario.host.inbox_bytes = random.spread(32 << 10, 4 << 20);
  if (random.percent(50))
    scenario.host.poll_delay = Duration(static_cast<int64_t>(random.spread(100, 1'000'000)));
  scenario.hosts = static_cast<uint32_t>(random.spread(2, 6));
  if (Random lines(~seed); lines.percent(30))
    for (HostId host = 0; host < scenario.hosts; ++host)
      scenario.network.own_lines.push_back(draw_line(lines));
  const uint64_t connections = random.spread(1, 8);
  // A few runs move megabytes, most do not: thousands of them must fit into seconds.
  const uint64_t budget = random.percent(2) ? 4 << 20 : random.spread(64, 1 << 20) / connections + 64;
  for (uint32_t i = 0; i < connections; ++i)
    scenario.connections.push_back(draw_connection(random, scenario, i, budget));
  scenario.mishaps = draw_mishaps(random, scenario);
  if (random.percent(30)) add_xrc(random, scenario);
  return scenario;
}

std::string to_line(const Scenario& scenario) {
  const auto& network = scenario.network;
  const auto& bad = network.impairment;
  return fmt::format(
      "seed {}: {} hosts, {} with lines of their own, {} connections, {} shared queues, {} mishaps; {} Mb/s, "
      "delay {} us + {}, queues {} {} {}; lost {} doubled {} damaged {} overtaken {} by {} us",
      scenario.seed, scenario.hosts, network.own_lines.size(), scenario.connections.size(),
      scenario.host.pools.count, scenario.mishaps.size(), network.bits_per_second / 1'000'000,
      bad.delay.count() / 1000, bad.jitter.count() / 1000, network.send_queue_bytes,
      network.receive_queue_bytes, scenario.host.inbox_bytes, bad.lost, bad.doubled, bad.damaged,
      bad.overtaken, bad.held_back.count() / 1000);
}

}  // namespace verbena::sim
