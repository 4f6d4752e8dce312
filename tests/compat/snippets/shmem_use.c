/* An OpenSHMEM program: put, get, atomics and a reduction between processing elements, each value looked at.
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64, WORDS = 4096 };
static long cells[MOST];
static long block[WORDS];
static long counter, mine, sum;
static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + MOST];
static long sync_area[SHMEM_REDUCE_SYNC_SIZE];

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "element %d: %s is wrong\n", shmem_my_pe(), what);
  shmem_global_exit(1);
}

int main(void) {
  shmem_init();
  int me = shmem_my_pe(), all = shmem_n_pes();
  for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; ++i) sync_area[i] = SHMEM_SYNC_VALUE;
  for (int i = 0; i < WORDS; ++i) block[i] = me * 10000L + i;
  mine = me + 1;
  shmem_barrier_all();

  for (int to = 0; to < all; ++to) shmem_long_p(&cells[me], me * 100L + to, to);
  shmem_barrier_all();
  for (int from = 0; from < all; ++from) expect(cells[from] == from * 100L + me, "the put");

  static long copy[WORDS];
  int next = (me + 1) % all;
  shmem_long_get(copy, block, WORDS, next);
  for (int i = 0; i < WORDS; ++i) expect(copy[i] == next * 10000L + i, "the get");

  for (int i = 0; i < 50; ++i) shmem_long_atomic_fetch_inc(&counter, 0);
  shmem_barrier_all();
  expect(shmem_long_atomic_fetch(&counter, 0) == 50L * all, "the counter");
  shmem_barrier_all(); /* all have looked */
  if (me == all - 1)
    expect(shmem_long_atomic_compare_swap(&counter, 50L * all, 7, 0) == 50L * all, "the swap");
  shmem_barrier_all();
  expect(shmem_long_g(&counter, 0) == 7, "what was swapped in");

  shmem_long_sum_to_all(&sum, &mine, 1, 0, 0, all, work, sync_area);
  expect(sum == (long)all * (all + 1) / 2, "the sum");
  shmem_barrier_all();
  if (me == 0) printf("%d elements ok\n", all);
  shmem_finalize();
  return 0;
}
