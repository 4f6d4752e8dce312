// Two managers, a network between them that loses, doubles and delays, and programs that connect, accept,
// reject, disconnect, destroy and die when they like. All of it follows from a seed.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "cm/manager.hpp"

namespace verbena::cm {

struct Weather {
  double loss = 0;         // of one MAD
  double doubling = 0;     // of one MAD
  double death = 0;        // of a program, at each of its steps
  double datagrams = 0;    // of a connect, that it asks for a datagram service
  double patience = 0;     // of a program that connected, that it waits for the other end to end it
  int longest_way_ms = 5;  // a MAD takes anything up to that
};

class SimulatedWorld {
 public:
  SimulatedWorld(uint64_t seed, Weather weather);
  // Lets programs do their worst for a while, then ends what still runs. What went wrong; empty: nothing.
  std::string run();

  struct Tally {
    unsigned connects = 0;
    unsigned established = 0;  // at the active side
    unsigned rejected = 0;
    unsigned unreachable = 0;
    unsigned disconnected = 0;  // either side
    unsigned deaths = 0;
  };
  [[nodiscard]] const Tally& tally() const { return tally_; }

 private:
  enum class Phase { kIdle, kConnecting, kResponded, kRequested, kAccepted, kConnected, kOver, kDestroyed };
  struct Program {
    unsigned host = 0;
    Client client = 0;
    bool alive = true;
    std::map<uint32_t, Phase> ids;
  };
  struct Action {
    base::Instant at;
    uint64_t order = 0;
    std::function<void()> work;
    bool operator>(const Action& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void later(int longest_ms, std::function<void()> work);
  bool chance(double probability);
  void pump(unsigned host);
  void travel(unsigned from, const Outgoing& outgoing);
  void on_event(Program& program, const ipc::CmEvent& event);
  void on_request(Program& program, const ipc::CmEvent& event);
  void on_response(Program& program, uint32_t id);
  void end_of(Program& program, uint32_t id, ipc::CmEventKind kind);
  void live_on(Program& program, uint32_t id);
  void start_connect(Program& program, uint32_t id);
  void kill(Program& program);
  void complain(const std::string& what);
  // Until nothing is left to happen, or `end`.
  void advance(base::Instant end);
  void check_all_concluded();

  std::mt19937_64 random_;
  Weather weather_;
  base::Instant now_{1'000'000'000};
  uint64_t order_ = 0;
  std::array<std::unique_ptr<Manager>, 2> hosts_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::priority_queue<Action, std::vector<Action>, std::greater<>> actions_;
  std::string wrong_;
  Tally tally_;
};

}  // namespace verbena::cm
