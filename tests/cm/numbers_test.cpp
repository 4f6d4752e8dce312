// A thousand connections at once, and a thousand in a row: nothing of them stays, in the processes or the
// agent.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <thread>

#include "peers.hpp"

namespace verbena::cm_test {
namespace {

using support::eventually;

// So many in each round, or as many as a busy machine makes in a second and a half; CM_CONNECTIONS takes its
// time.
const uint64_t kConnections = from_environment("CM_CONNECTIONS", 1'000);
const uint64_t kTime_ms = std::getenv("CM_CONNECTIONS") != nullptr ? 600'000 : 1'500;

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
    const unsigned slots = crash::slots_taken().value_or(0);
    Footprint at_agent = footprint(agent.value_or(0));
    // Our own questions are connections, too, which it closes a moment later.
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      at_agent.descriptors = std::min(at_agent.descriptors, support::descriptor_count(agent.value_or(0)));
    }
    return {.server = footprint(server.process.pid()),
            .client = footprint(client.process.pid()),
            .agent = at_agent,
            .slots = slots};
  }
  static void expect_no_growth(const char* who, const Footprint& before, const Footprint& after) {
    EXPECT_LE(after.descriptors, before.descriptors) << who;
    // So much may be the allocator's; ids and connections that stayed would take 700 B each at the agent. A
    // sanitizer keeps what was freed for a while, so there memory tells nothing.
    if (!kSanitized) {
      EXPECT_LE(after.resident_kib, before.resident_kib + 512) << who;
    }
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

// How many it made of `most`; none may have failed.
uint64_t made(Client& client, const std::string& how, const std::string& port, uint64_t most) {
  const auto said =
      client.tell(how + " " + port + " " + std::to_string(most) + " " + std::to_string(kTime_ms));
  std::istringstream words(said);
  std::string what;
  std::string failure;
  uint64_t count = 0;
  words >> what >> count >> failure;
  EXPECT_EQ(failure, "") << said;
  EXPECT_GT(count, 0u) << said;
  std::cout << said << "\n";
  return count;
}

// The agent remembers what has ended for 4.3 s, for duplicates: only then the next round can be compared.
void wait_until_forgotten() { std::this_thread::sleep_for(std::chrono::milliseconds(4'400)); }

TEST_F(Numbers, ThousandAtOnce) {
  Server server;
  Client client;
  const auto round = [&](uint64_t most) {
    const auto count = made(client, "open", server.port, most);
    EXPECT_TRUE(eventually([&] { return server.live() == count; }));
    EXPECT_EQ(client.tell("close"), "closed " + std::to_string(count));
    return count;
  };
  EXPECT_EQ(client.tell("lives " + server.port + " 1 60000"), "lived 1 ");
  const auto fresh = measure(server, client);
  const auto count = round(kConnections);
  const auto before = measure(server, client);
  EXPECT_LE(before.server.descriptors, fresh.server.descriptors);
  EXPECT_LE(before.client.descriptors, fresh.client.descriptors);
  EXPECT_LE(before.agent.descriptors, fresh.agent.descriptors);
  wait_until_forgotten();
  round(count);
  expect_no_growth(before, measure(server, client));
}

TEST_F(Numbers, ThousandInARow) {
  Server server;
  Client client;
  const auto count = made(client, "lives", server.port, kConnections);
  const auto before = measure(server, client);
  wait_until_forgotten();
  made(client, "lives", server.port, count);
  expect_no_growth(before, measure(server, client));
}

}  // namespace
}  // namespace verbena::cm_test
