// Processes with slots, and packets to check that each slot's reach its owner.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/process.hpp"

namespace verbena::crash {

// Each test begins on a host where no agent runs, whatever the one before left to end by itself.
class FreshHost : public testing::Test {
 protected:
  void SetUp() override;
};

struct Member {
  support::Process process;
  unsigned slot = 0;
};

// Starts a client and waits until it has its slot; records a test failure if it gets none.
Member enlist(const support::Process::Options& options = {});
// Starts `count` of them at the same time.
std::vector<Member> enlist_all(unsigned count);

// Sends a packet as RoCEv2 would to a queue pair of that slot, over IPv4 or IPv6 loopback.
void send_to_slot(unsigned slot, const std::string& token, bool ipv6 = false);
// A packet to its slot reaches it.
bool reached(Member& member, const std::string& token);

// Kills the agent of this namespace and waits until it is gone.
void kill_agent();
// The pid of an agent other than `old`, once there is one.
std::optional<pid_t> next_agent(pid_t old);

// A counter of the running agent's registry; nothing while none runs.
std::optional<uint64_t> counter(const std::string& name);
// Slots that aren't free.
std::optional<unsigned> slots_taken();
// True when no agent runs any more, nothing is on the port, and the agent's directory is gone.
bool nothing_left();

}  // namespace verbena::crash
