// Destroying an object waits until the program has acknowledged each event about it that it was handed.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>

#include "base/explain.hpp"

namespace verbena::abi {

// With `mutex` held. Counts wrap, so only equality counts. After a second it says which call waits, and for
// what.
inline void wait_for_acks(pthread_mutex_t& mutex, pthread_cond_t& changed, const uint32_t& acknowledged,
                          const uint32_t& handed_out, const char* waits, const char* awaited) {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  ++until.tv_sec;
  while (acknowledged != handed_out)
    if (pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT) break;
  if (acknowledged == handed_out) return;
  base::explain(std::string(waits) + " waits until the program acknowledges " +
                std::to_string(handed_out - acknowledged) + " events that it took: call " + awaited);
  while (acknowledged != handed_out) pthread_cond_wait(&changed, &mutex);
}

}  // namespace verbena::abi
