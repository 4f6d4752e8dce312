/* A ring, collective sums and a window: what an MPI program does first, with every value looked at. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int value_at(int from, int i, int count) { return from * 1000003 + i * 7 + count; }

/* Small, middling and large messages take different protocols. */
static void ring(int count) {
  int* out = malloc(sizeof(int) * count);
  int* in = malloc(sizeof(int) * count);
  int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int i = 0; i < count; ++i) {
    out[i] = value_at(rank, i, count);
    in[i] = -1;
  }
  MPI_Sendrecv(out, count, MPI_INT, next, 5, in, count, MPI_INT, before, 5, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < count; ++i) expect(in[i] == value_at(before, i, count), "the ring");
  free(out);
  free(in);
}

static void allreduce(int count) {
  long* mine = malloc(sizeof(long) * count);
  long* sum = malloc(sizeof(long) * count);
  for (int i = 0; i < count; ++i) mine[i] = (long)(rank + 1) * i;
  MPI_Allreduce(mine, sum, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; ++i) expect(sum[i] == (long)size * (size + 1) / 2 * i, "the sum");
  free(mine);
  free(sum);
}

/* Each rank owns a counter, and a row of one cell a rank. */
static void window(void) {
  long* base;
  MPI_Win win;
  MPI_Win_allocate(sizeof(long) * (size + 1), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  for (int i = 0; i <= size; ++i) base[i] = 0;
  MPI_Win_fence(0, win);
  for (int to = 0; to < size; ++to) {
    long cell = 100L * rank + to;
    MPI_Put(&cell, 1, MPI_LONG, to, 1 + rank, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
  }
  for (int from = 0; from < size; ++from) expect(base[1 + from] == 100L * from + rank, "the put");
  long got = -1;
  MPI_Get(&got, 1, MPI_LONG, (rank + 1) % size, 1 + rank, 1, MPI_LONG, win);
  MPI_Win_fence(0, win);
  expect(got == 100L * rank + (rank + 1) % size, "the get");

  enum { ROUNDS = 50 };
  long one = 1, last = -1;
  MPI_Win_lock_all(0, win);
  for (int i = 0; i < ROUNDS; ++i) {
    long old = -1;
    MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win);
    MPI_Win_flush(0, win);
    expect(old > last && old < (long)ROUNDS * size, "the fetched count");
    last = old;
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    long total = -1;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Get(&total, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
    MPI_Win_unlock(0, win);
    expect(total == (long)ROUNDS * size, "the total");
  }
  MPI_Win_free(&win);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static const int counts[] = {1, 1000, 300000};
  for (int i = 0; i < 3; ++i) {
    ring(counts[i]);
    allreduce(counts[i]);
  }
  if (rank == 0) printf("%d ranks: ring and allreduce ok\n", size);
  window();
  if (rank == 0) printf("%d ranks: window ok\n", size);
  MPI_Finalize();
  return 0;
}
