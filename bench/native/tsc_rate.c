// How fast this machine's time stamp counter counts: prints "tsc_khz N".
//
// An emulated guest reads the same counter, but finds out its rate by timing loops, which go wrong by a
// factor of several on a busy host; told the rate, its clock is right.
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct Moment {
  uint64_t ticks;
  double seconds;
};

// Of many tries the one that took least, so that nobody was scheduled in between.
static struct Moment moment(void) {
  struct Moment best = {0, 0};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 1000; ++i) {
    struct timespec t;
    uint64_t before = __rdtsc();
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t after = __rdtsc();
    if (after - before < shortest) {
      shortest = after - before;
      best = (struct Moment){before + shortest / 2, (double)t.tv_sec + (double)t.tv_nsec * 1e-9};
    }
  }
  return best;
}

int main(void) {
  struct Moment first = moment();
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  struct Moment last = moment();
  printf("tsc_khz %.0f\n", (double)(last.ticks - first.ticks) / (last.seconds - first.seconds) / 1e3);
  return 0;
}
