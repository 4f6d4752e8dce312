// A ping-pong of RDMA WRITEs in which whoever waits for the other's bytes polls its completion queue as well.
// ib_write_lat waits in memory alone, so that over a network only the library's helper thread can take the
// packet in; this one measures what a program gets that polls, as most programs do.
//
//   rdma_peer serve PORT ADDRESS               one client, then ends
//   rdma_peer write PORT SIZE ITERS ADDRESS    prints "latency_us N", the median of half round trips
//
// The first device, its port 1, its GID 0.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kLargest = 1 << 20, kDepth = 16 };

// What each end tells the other; the server takes size and iterations from the client.
struct Hello {
  union ibv_gid gid;
  uint64_t address, size, iterations;
  uint32_t qpn, rkey;
};

struct End {
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  volatile char* out;  // what we write from
  volatile char* in;   // what the other writes to
  struct Hello own, other;
};

static void fail(const char* what) {
  fprintf(stderr, "rdma_peer: %s: %s\n", what, strerror(errno));
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  errno = EINVAL;
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

static void open_end(struct End* end) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) fail("no device");
  struct ibv_context* context = ibv_open_device(devices[0]);
  struct ibv_pd* pd = context != NULL ? ibv_alloc_pd(context) : NULL;
  char* memory = aligned_alloc(4096, 2 * kLargest);
  if (pd == NULL || memory == NULL) fail("open");
  memset(memory, 0, 2 * kLargest);
  end->out = memory;
  end->in = memory + kLargest;
  end->mr = ibv_reg_mr(pd, memory, 2 * kLargest, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  end->cq = ibv_create_cq(context, 2 * kDepth, NULL, NULL, 0);
  if (end->mr == NULL || end->cq == NULL) fail("register");
  struct ibv_qp_init_attr init = {.send_cq = end->cq,
                                  .recv_cq = end->cq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = kDepth,
                                          .max_recv_wr = 1,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = 64}};
  end->qp = ibv_create_qp(pd, &init);
  if (end->qp == NULL) fail("ibv_create_qp");
  if (ibv_query_gid(context, 1, 0, &end->own.gid) != 0) fail("ibv_query_gid");
  end->own.address = (uint64_t)(uintptr_t)end->in;
  end->own.qpn = end->qp->qp_num;
  end->own.rkey = end->mr->rkey;
}

static void exchange(struct End* end, int control) {
  if (send(control, &end->own, sizeof end->own, MSG_NOSIGNAL) != sizeof end->own ||
      recv(control, &end->other, sizeof end->other, MSG_WAITALL) != sizeof end->other)
    fail("exchange");
}

static void connect_end(struct End* end, int control) {
  exchange(end, control);
  struct ibv_port_attr port;
  if (ibv_query_port(end->qp->context, 1, &port) != 0) fail("ibv_query_port");
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) !=
      0)
    fail("INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = port.active_mtu,
                              .dest_qp_num = end->other.qpn,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
  attr.ah_attr.grh.dgid = end->other.gid;
  if (ibv_modify_qp(end->qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    fail("RTR");
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  if (ibv_modify_qp(end->qp, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    fail("RTS");
  exchange(end, control);  // the other is ready, too
}

static void write_turn(struct End* end, uint64_t size, char turn) {
  end->out[size - 1] = turn;
  struct ibv_sge piece = {(uint64_t)(uintptr_t)end->out, (uint32_t)size, end->mr->lkey};
  struct ibv_send_wr request = {.sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED | (size <= 64 ? IBV_SEND_INLINE : 0)};
  request.wr.rdma.remote_addr = end->other.address;
  request.wr.rdma.rkey = end->other.rkey;
  struct ibv_send_wr* bad;
  errno = ibv_post_send(end->qp, &request, &bad);
  if (errno != 0) fail("ibv_post_send");
}

// Until the other's bytes are there and our own WRITE of the turn before has ended.
static void await_turn(struct End* end, uint64_t size, char turn, int* under_way) {
  while (end->in[size - 1] != turn || *under_way > 1) {
    struct ibv_wc done;
    int count = ibv_poll_cq(end->cq, 1, &done);
    if (count < 0 || (count > 0 && done.status != IBV_WC_SUCCESS)) {
      fprintf(stderr, "rdma_peer: failed: %s\n", count < 0 ? "ibv_poll_cq" : ibv_wc_status_str(done.status));
      exit(1);
    }
    *under_way -= count;
  }
}

static int serve(const char* port, const char* host) {
  struct End end = {0};
  open_end(&end);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  struct sockaddr_in own = address_of(host, port);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr*)&own, sizeof own) != 0 || listen(listener, 1) != 0) fail("listen");
  int control = accept(listener, NULL, NULL), under_way = 0;
  if (control < 0) fail("accept");
  connect_end(&end, control);
  for (uint64_t i = 0; i < end.other.iterations; ++i) {
    await_turn(&end, end.other.size, (char)(i % 127 + 1), &under_way);
    write_turn(&end, end.other.size, (char)(i % 127 + 1));
    ++under_way;
  }
  while (under_way > 0) {
    struct ibv_wc done;
    under_way -= ibv_poll_cq(end.cq, 1, &done);
  }
  return 0;
}

static int by_value(const void* left, const void* right) {
  uint64_t a = *(const uint64_t*)left, b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

static int measure(uint64_t size, uint64_t iterations, const char* port, const char* host) {
  struct End end = {.own = {.size = size, .iterations = iterations}};
  open_end(&end);
  int control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), under_way = 0;
  struct sockaddr_in server = address_of(host, port);
  if (connect(control, (struct sockaddr*)&server, sizeof server) != 0) fail("connect");
  connect_end(&end, control);
  uint64_t* took = malloc(iterations * sizeof *took);
  if (took == NULL) fail("memory");
  for (uint64_t i = 0; i < iterations; ++i) {
    uint64_t start = now_ns();
    write_turn(&end, size, (char)(i % 127 + 1));
    ++under_way;
    await_turn(&end, size, (char)(i % 127 + 1), &under_way);
    took[i] = now_ns() - start;
  }
  qsort(took, iterations, sizeof *took, by_value);
  printf("latency_us %.4f\n", (double)took[iterations / 2] / 2e3);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  if (argc == 6 && strcmp(argv[1], "write") == 0) {
    uint64_t size = strtoull(argv[3], NULL, 10), iterations = strtoull(argv[4], NULL, 10);
    if (size > 0 && size <= kLargest && iterations > 0) return measure(size, iterations, argv[2], argv[5]);
  }
  fprintf(stderr, "usage: rdma_peer serve PORT ADDRESS | rdma_peer write PORT SIZE ITERATIONS ADDRESS\n");
  return 2;
}
