// A thousand connections at once, and a thousand in a row: nothing of them stays, in the processes or the
// agent.
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>
#include <thread>

#include "peers.hpp"

namespace verbena::cm_test {
namespace {

using support::eventually;

// So many in each round, or as many as a busy machine makes in three seconds; CM_CONNECTIONS takes its time.
const uint64_t kConnections = from_environment("CM_CONNECTIONS", 1'000);
const uint64_t kTime_ms = std::getenv("CM_CONNECTIONS") != nullptr ? 600'000 : 3'000;

class Numbers : public crash::FreshHost {
 protected:
  // The agent leaves when it has no id, no slot and no connection under way any more.
  void TearDown() override { EXPECT_TRUE(crash::nothing_left()); }

  struct Measured {
    Footprint server;
    Footprint client;
    Footprint agent;
    unsigned slots = 0;
  };
  Measured measure(Server& server, const Client& client) {
    EXPECT_TRUE(eventually([&] { return server.live() == 0u; })) << "connections stay at the server";
    const auto agent = support::agent_pid();
    EXPECT_TRUE(agent);
    return {.server = footprint(server.process.pid()),
            .client = footprint(client.process.pid()),
            .agent = footprint(agent.value_or(0)),
            .slots = crash::slots_taken().value_or(0)};
  }
  static void expect_no_growth(const char* who, const Footprint& before, const Footprint& after) {
    EXPECT_LE(after.descriptors, before.descriptors) << who;
    // So much may be the allocator's; ids and connections that stayed would take 700 B each at the agent.
    EXPECT_LE(after.resident_kib, before.resident_kib + (kSanitized ? 16'384 : 512)) << who;
    std::cout << who << ": " << before.descriptors << " then " << after.descriptors << " descriptors, "
              << before.resident_kib << " then " << after.resident_kib << " KiB\n";
  }
  static void expect_no_growth(const Measured& before, const Measured& after) {
    expect_no_growth("server", before.server, after.server);
    expect_no_growth("client", before.client, after.client);
    expect_no_growth("agent", before.agent, after.agent);
    EXPECT_EQ(after.slots, before.slots);
  }
};

// How many; none may have failed.
uint64_t made(Client& client, const std::string& how, const std::string& port) {
  const auto said =
      client.tell(how + " " + port + " " + std::to_string(kConnections) + " " + std::to_string(kTime_ms));
  std::istringstream words(said);
  std::string what;
  std::string failure;
  uint64_t count = 0;
  words >> what >> count >> failure;
  EXPECT_EQ(failure, "") << said;
  EXPECT_GT(count, 0u) << said;
  return count;
}

TEST_F(Numbers, ThousandAtOnce) {
  Server server;
  Client client;
  const auto round = [&] {
    const auto count = made(client, "open", server.port);
    EXPECT_TRUE(eventually([&] { return server.live() == count; }));
    EXPECT_EQ(client.tell("close"), "closed " + std::to_string(count));
    std::cout << count << " at once\n";
  };
  EXPECT_EQ(client.tell("lives " + server.port + " 1 60000"), "lived 1 ");
  const auto fresh = measure(server, client);
  round();
  const auto before = measure(server, client);
  EXPECT_EQ(before.server.descriptors, fresh.server.descriptors);
  EXPECT_EQ(before.client.descriptors, fresh.client.descriptors);
  EXPECT_EQ(before.agent.descriptors, fresh.agent.descriptors);
  round();
  if (!HasFailure()) expect_no_growth(before, measure(server, client));
}

TEST_F(Numbers, ThousandInARow) {
  Server server;
  Client client;
  std::cout << made(client, "lives", server.port) << " in a row\n";
  const auto before = measure(server, client);
  // The agent remembers what has ended for 4.3 s, for duplicates: as much of it before as after.
  std::this_thread::sleep_for(std::chrono::milliseconds(4'400));
  std::cout << made(client, "lives", server.port) << " in a row\n";
  expect_no_growth(before, measure(server, client));
}

}  // namespace
}  // namespace verbena::cm_test
