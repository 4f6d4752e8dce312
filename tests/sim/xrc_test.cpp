// XRC: several requesters, and one host whose shared receive queues they use together.
#include <gtest/gtest.h>

#include "engine/timers.hpp"
#include "sim/run.hpp"

namespace verbena::sim {
namespace {

constexpr uint32_t kQueues = 3;
constexpr uint32_t kRequesters = 5;

// Requests of all kinds to host 0, over a network that loses and reorders, into queues that are often empty.
Scenario crowd(uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.hosts = 3;
  scenario.network.impairment = {.lost = 10'000,
                                 .overtaken = 10'000,
                                 .held_back = std::chrono::microseconds(50),
                                 .delay = std::chrono::microseconds(10)};
  scenario.host.pools = {.count = kQueues, .at_once = 1, .lag = std::chrono::microseconds(200)};
  for (uint32_t i = 0; i < kRequesters; ++i) {
    ConnectionPlan connection;
    connection.hosts[0] = 1 + i % 2;
    for (unsigned side = 0; side < 2; ++side) {
      EndpointConfig& end = connection.ends[side];
      end.service = roce::Service::kXrc;
      end.qpn = base::Qpn{0x010000 + i * 2 + side};
      end.peer_qpn = base::Qpn{0x010000 + i * 2 + 1 - side};
      end.fetches = 4;
      end.timeout = engine::ack_timeout(18);
      end.busy = 1000;
      connection.plans[side].requests = 0;
    }
    connection.plans[0].requests = 60;
    scenario.connections.push_back(connection);
  }
  return scenario;
}

uint64_t drops(const Host& host, engine::DropReason reason) {
  return host.counters().drops[static_cast<size_t>(reason)];
}

TEST(Xrc, ManyRequestersShareQueues) {
  uint64_t not_ready = 0;
  uint64_t duplicates = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World world(crowd(seed));
    world.run({});
    ASSERT_EQ(world.oracle().what(), "") << "seed " << seed;
    const Host& target = *world.hosts()[0];
    EXPECT_EQ(target.endpoints().size(), kRequesters);
    for (const auto& end : target.endpoints()) EXPECT_FALSE(end->in_error());
    for (const auto& host : world.hosts()) EXPECT_EQ(drops(*host, engine::DropReason::kBadOpcode), 0u);
    not_ready += drops(target, engine::DropReason::kNotReady);
    duplicates += drops(target, engine::DropReason::kDuplicate);
  }
  EXPECT_GT(not_ready, 100u);
  EXPECT_GT(duplicates, 100u);
}

// One request at fault ends its own connection, as planned, and no other one.
TEST(Xrc, AFaultIsItsConnectionsOnly) {
  unsigned failed = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Scenario scenario = crowd(seed);
    scenario.connections[0].plans[0].provokes = true;
    World world(scenario);
    world.run({});
    ASSERT_EQ(world.oracle().what(), "") << "seed " << seed;
    const auto& ends = world.hosts()[0]->endpoints();
    for (size_t i = 1; i < ends.size(); ++i) EXPECT_FALSE(ends[i]->in_error());
    failed += ends[0]->in_error();
  }
  EXPECT_GT(failed, 50u);  // the others failed by the requester's own memory
}

TEST(Xrc, SeedsDrawItOften) {
  unsigned shared = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    unsigned into[8] = {};
    for (const auto& connection : scenario.connections)
      if (connection.ends[0].service == roce::Service::kXrc) ++into[connection.hosts[1]];
    for (const unsigned count : into) shared += count > 1;
  }
  EXPECT_GT(shared, 30u);
}

}  // namespace
}  // namespace verbena::sim
