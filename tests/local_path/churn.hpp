// Deregistration against peers that access the memory at that very moment.
#pragma once

#include <atomic>
#include <random>

#include "local_path/rig.hpp"

namespace verbena::local_path {

inline constexpr size_t kChurnPeers = 2;
inline constexpr size_t kChurnBytes = 256 * 1024;

// What the processes of one test tell each other, in a file that all of them map. Memory of the test, not of
// Verbena: it has to be fast enough to meet the moments it is after.
struct Board {
  struct Seat {
    // The two queue pairs of this connection, told once.
    Address target;
    Address requester;
    std::atomic<uint32_t> told;       // bit 0: target's address is there, bit 1: requester's
    std::atomic<uint32_t> requested;  // how often the requester has asked to be connected anew
    std::atomic<uint32_t> connected;  // how often it was
  };
  std::atomic<uint64_t> offer;  // key << 32 | number of the registration; 0: none yet
  std::atomic<uint64_t> address;
  std::atomic<uint32_t> stop;
  Seat seats[kChurnPeers];
};
[[nodiscard]] Board& open_board(const std::string& path);

struct ChurnReport {
  uint64_t rounds = 0;      // registrations that came and went, or requests
  uint64_t good = 0;        // requests that ended well
  uint64_t refused = 0;     // ... with REM_ACCESS
  uint64_t other = 0;       // ... with something that isn't allowed here
  int status = 0;           // ... namely the last of those; -1: it never ended
  uint64_t violations = 0;  // bytes were changed after ibv_dereg_mr had returned
  int64_t longest_us = 0;   // ibv_dereg_mr
};
std::ostream& operator<<(std::ostream& out, const ChurnReport& report);

// The target: registers, lets the peers have it, deregisters, looks whether it is left alone.
[[nodiscard]] ChurnReport churn_target(const Rig& rig, Board& board, int64_t milliseconds, uint64_t seed);
// A peer: writes and reads what is on offer until the board says stop.
[[nodiscard]] ChurnReport churn_peer(const Rig& rig, Board& board, size_t seat, uint64_t seed);

// The same for messages: the target's receives lie in the region that goes, and another thread of it polls.
[[nodiscard]] ChurnReport churn_receiver(const Rig& rig, Board& board, int64_t milliseconds, uint64_t seed);
[[nodiscard]] ChurnReport churn_sender(const Rig& rig, Board& board, size_t seat, uint64_t seed);

}  // namespace verbena::local_path
