// The two limits of anything that moves bytes between cores of one machine; also the probe of how the machine
// is now.
//
//   memory copy SIZE SECONDS      memcpy between two warm buffers on one core
//   memory hop CORE CORE SECONDS  a cache line's way from one core to another, half a round trip
//
// Prints "key value" lines.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMaxSamples = 1 << 16, kHopsPerSample = 200 };
static uint64_t samples[kMaxSamples];

static void fail(const char* what) {
  fprintf(stderr, "memory: %s\n", what);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void* left, const void* right) {
  uint64_t a = *(const uint64_t*)left, b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

// The median: a virtual machine loses its cores for milliseconds, which an average would show.
static double median_ns(size_t count) {
  qsort(samples, count, sizeof *samples, by_value);
  return (double)samples[count / 2];
}

// --- memcpy ---

static char* new_buffer(size_t size) {
  char* buffer = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (buffer == NULL) fail("out of memory");
  memset(buffer, 1, size);
  return buffer;
}

// Through a pointer that the compiler can't see through, so that it is the library's memcpy for every size.
static void* (*volatile copy)(void*, const void*, size_t) = memcpy;

static int measure_copy(size_t size, double seconds) {
  char *from = new_buffer(size), *to = new_buffer(size);
  // A sample lasts some microseconds, so that reading the clock doesn't count.
  size_t per_sample = size < 65536 ? 65536 / size + 1 : 1;
  if (per_sample > 1000) per_sample = 1000;
  for (int i = 0; i < 3; ++i) copy(to, from, size);
  size_t count = 0;
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  while (count < kMaxSamples && (count < 5 || now_ns() < end)) {
    uint64_t start = now_ns();
    for (size_t i = 0; i < per_sample; ++i) copy(to, from, size);
    samples[count++] = now_ns() - start;
  }
  double each_ns = median_ns(count) / (double)per_sample;
  printf("latency_us %.6f\n", each_ns / 1e3);
  printf("bandwidth_mib_s %.4f\n", (double)size * 1e9 / each_ns / (1 << 20));
  printf("rate_mops %.6f\n", 1e3 / each_ns);
  return 0;
}

// --- one cache line between two cores ---

static _Alignas(128) atomic_uint ball;
static atomic_int over;

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("this core can't be had");
}

// Odd values come from the other side, even ones go back.
static void* return_ball(void* core) {
  pin(*(int*)core);
  while (!atomic_load_explicit(&over, memory_order_relaxed)) {
    unsigned seen = atomic_load_explicit(&ball, memory_order_acquire);
    if (seen & 1) atomic_store_explicit(&ball, seen + 1, memory_order_release);
  }
  return NULL;
}

static int measure_hop(int near_core, int far_core, double seconds) {
  pthread_t other;
  if (pthread_create(&other, NULL, return_ball, &far_core) != 0) fail("no thread");
  pin(near_core);
  size_t count = 0;
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  while (count < kMaxSamples && (count < 5 || now_ns() < end)) {
    uint64_t start = now_ns();
    for (int i = 0; i < kHopsPerSample; ++i) {
      unsigned mine = atomic_load_explicit(&ball, memory_order_relaxed) + 1;
      atomic_store_explicit(&ball, mine, memory_order_release);
      while (atomic_load_explicit(&ball, memory_order_acquire) == mine) {
      }
    }
    samples[count++] = now_ns() - start;
  }
  atomic_store(&over, 1);
  pthread_join(other, NULL);
  double median = median_ns(count) / kHopsPerSample / 2;
  printf("hop_ns %.1f\n", median);
  printf("hop_min_ns %.1f\n", (double)samples[0] / kHopsPerSample / 2);
  printf("hop_p90_ns %.1f\n", (double)samples[count * 9 / 10] / kHopsPerSample / 2);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "copy") == 0 && atoll(argv[2]) > 0)
    return measure_copy((size_t)atoll(argv[2]), atof(argv[3]));
  if (argc == 5 && strcmp(argv[1], "hop") == 0)
    return measure_hop(atoi(argv[2]), atoi(argv[3]), atof(argv[4]));
  fprintf(stderr, "usage: memory copy SIZE SECONDS | memory hop CORE CORE SECONDS\n");
  return 2;
}
