// Many objects in one process: what an idle queue pair costs, and whether the others make one slower.
//
//   objects_peer ROUNDS QUEUE_PAIRS REGIONS QUEUES     prints "key value" lines
//
//   qp_arena_bytes     of the process's shared segments, per RC queue pair with 16-deep queues, connected and
//   idle qp_private_bytes   of its own memory, per queue pair qp_create_us, mr_create_us, cq_create_us    on
//   average, of that many few_ns, many_ns    a signalled 8-byte WRITE posted and polled, before and beside
//   all of them; medians of rounds
//                      that are taken in turn while they are made and destroyed
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kMostRounds = 20, kWrites = 20000, kMost = 100000 };

static struct ibv_context* device;
static struct ibv_pd* pd;

static void fail(const char* what) {
  fprintf(stderr, "objects_peer: %s: %s\n", what, strerror(errno));
  exit(1);
}

// Of this thread's own work: what else the machine does meanwhile isn't counted.
static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Pages that the shared segments have.
static double arena_bytes(void) {
  DIR* folder = opendir("/proc/self/fd");
  double sum = 0;
  for (struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    char path[64], target[128];
    snprintf(path, sizeof path, "/proc/self/fd/%.32s", entry->d_name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    struct stat info;
    if (length <= 0 || stat(path, &info) != 0) continue;
    target[length] = 0;
    if (strstr(target, "memfd:verbena-tables") || strstr(target, "memfd:verbena-rings"))
      sum += (double)info.st_blocks * 512;
  }
  closedir(folder);
  return sum;
}

static double private_bytes(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  double kib = 0;
  while (file != NULL && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %lf", &kib);
  fclose(file);
  return kib * 1024;
}

static struct ibv_qp* make_qp(struct ibv_cq* cq) {
  struct ibv_qp_init_attr wanted = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC};
  struct ibv_qp* made = ibv_create_qp(pd, &wanted);
  if (made == NULL) fail("ibv_create_qp");
  return made;
}

static void connect_to(struct ibv_qp* qp, uint32_t peer) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    fail("INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  if (ibv_query_gid(device, 1, 0, &attr.ah_attr.grh.dgid)) fail("ibv_query_gid");
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    fail("RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 18;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC))
    fail("RTS");
}

static double measure(struct ibv_qp* qp, struct ibv_mr* mr, char* bytes) {
  struct ibv_sge piece = {(uintptr_t)bytes, 8, mr->lkey};
  struct ibv_send_wr request = {.sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {(uintptr_t)bytes + 64, mr->rkey}};
  struct ibv_send_wr* bad;
  struct ibv_wc done;
  const uint64_t began = now_ns();
  for (int i = 0; i < kWrites; ++i) {
    if ((errno = ibv_post_send(qp, &request, &bad)) != 0) fail("ibv_post_send");
    while (ibv_poll_cq(qp->send_cq, 1, &done) == 0) {
    }
    if (done.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(done.status));
  }
  return (double)(now_ns() - began) / kWrites;
}

static int ascending(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

static double median(double* values, int rounds) {
  qsort(values, rounds, sizeof *values, ascending);
  return values[rounds / 2];
}

int main(int count, char** words) {
  if (count != 5) return 2;
  const int rounds = atoi(words[1]), qps = atoi(words[2]), mrs = atoi(words[3]), cqs = atoi(words[4]);
  if (rounds < 1 || rounds > kMostRounds || qps < 2 || mrs < 1 || cqs < 1 || qps > kMost || mrs > kMost ||
      cqs > kMost)
    return 2;
  struct ibv_device** list = ibv_get_device_list(NULL);
  device = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
  if (device == NULL) fail("ibv_open_device");
  pd = ibv_alloc_pd(device);
  static char bytes[128];
  struct ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_cq* cq = ibv_create_cq(device, 64, NULL, NULL, 0);
  if (mr == NULL || cq == NULL) fail("the first objects");
  struct ibv_qp *one = make_qp(cq), *other = make_qp(cq);
  connect_to(one, other->qp_num);
  connect_to(other, one->qp_num);
  measure(one, mr, bytes);  // warm

  static struct ibv_cq* queues[kMost];
  static struct ibv_qp* pairs[kMost];
  static struct ibv_mr* regions[kMost];
  double few[kMostRounds], many[kMostRounds], arena = 0, own = 0, qp_us = 0, mr_us = 0, cq_us = 0,
                                              destroy_s = 0;
  for (int round = 0; round < rounds; ++round) {
    few[round] = measure(one, mr, bytes);
    uint64_t began = now_ns();
    for (int i = 0; i < cqs; ++i)
      if ((queues[i] = ibv_create_cq(device, 16, NULL, NULL, 0)) == NULL) fail("ibv_create_cq");
    cq_us = (double)(now_ns() - began) / 1e3 / cqs;
    const double arena_before = arena_bytes(), own_before = private_bytes();
    began = now_ns();
    for (int i = 0; i < qps; ++i) pairs[i] = make_qp(queues[i % cqs]);
    qp_us = (double)(now_ns() - began) / 1e3 / qps;
    for (int i = 0; i < qps; ++i)
      connect_to(pairs[i], pairs[i ^ 1] != NULL && (i ^ 1) < qps ? pairs[i ^ 1]->qp_num : one->qp_num);
    if (round == 0) {  // later ones find the pages of those before
      arena = (arena_bytes() - arena_before) / qps;
      own = (private_bytes() - own_before) / qps;
    }
    began = now_ns();
    for (int i = 0; i < mrs; ++i)
      if ((regions[i] = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE)) == NULL)
        fail("ibv_reg_mr");
    mr_us = (double)(now_ns() - began) / 1e3 / mrs;
    many[round] = measure(one, mr, bytes);
    began = now_ns();
    for (int i = 0; i < qps; ++i)
      if (ibv_destroy_qp(pairs[i]) != 0) fail("ibv_destroy_qp");
    for (int i = 0; i < cqs; ++i)
      if (ibv_destroy_cq(queues[i]) != 0) fail("ibv_destroy_cq");
    for (int i = 0; i < mrs; ++i)
      if (ibv_dereg_mr(regions[i]) != 0) fail("ibv_dereg_mr");
    destroy_s = (double)(now_ns() - began) / 1e9;
  }
  printf("qp_arena_bytes %.0f\nqp_private_bytes %.0f\n", arena, own);
  printf("qp_create_us %.2f\nmr_create_us %.2f\ncq_create_us %.2f\ndestroy_all_s %.2f\n", qp_us, mr_us, cq_us,
         destroy_s);
  printf("few_ns %.1f\nmany_ns %.1f\n", median(few, rounds), median(many, rounds));
  return 0;
}
