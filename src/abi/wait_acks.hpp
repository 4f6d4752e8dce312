// Destroying an object waits until the program has acknowledged each event about it that it was handed.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace verbena::abi {

// With `mutex` held. Counts wrap, so only equality counts.
inline void wait_for_acks(pthread_mutex_t& mutex, pthread_cond_t& changed, const uint32_t& acknowledged,
                          const uint32_t& handed_out) {
  while (acknowledged != handed_out) pthread_cond_wait(&changed, &mutex);
}

}  // namespace verbena::abi
