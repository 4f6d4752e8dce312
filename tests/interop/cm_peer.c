// A client over RDMA CM whose server's machine stops: connects to `rping -s`, says "writing", and sends once
// a second until a completion fails. Then it disconnects and tells which event came, and after how long.
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kRetries = 1, kPatienceMs = 100000 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void die(const char* what) {
  perror(what);
  exit(1);
}

// The next event of the channel; no event for long is an end, too.
static enum rdma_cm_event_type next_event(struct rdma_event_channel* channel) {
  struct pollfd ready = {channel->fd, POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) <= 0) {
    printf("no event\n");
    exit(1);
  }
  struct rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) die("rdma_get_cm_event");
  const enum rdma_cm_event_type type = event->event;
  rdma_ack_cm_event(event);
  return type;
}

static void expect(struct rdma_event_channel* channel, enum rdma_cm_event_type wanted) {
  const enum rdma_cm_event_type got = next_event(channel);
  if (got == wanted) return;
  printf("%s instead of %s\n", rdma_event_str(got), rdma_event_str(wanted));
  exit(1);
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct addrinfo* to;
  if (argc != 2 || getaddrinfo(argv[1], "7174", NULL, &to) != 0) return 2;  // rping's port
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id;
  if (channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) die("rdma_create_id");
  if (rdma_resolve_addr(id, NULL, to->ai_addr, 2000) != 0) die("rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  if (rdma_resolve_route(id, 2000) != 0) die("rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);

  static char buffer[16];  // as long as rping's
  struct ibv_pd* pd = ibv_alloc_pd(id->verbs);
  struct ibv_cq* cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
  struct ibv_mr* mr = pd != NULL ? ibv_reg_mr(pd, buffer, sizeof buffer, 0) : NULL;
  if (cq == NULL || mr == NULL) die("ibv_create_cq, ibv_reg_mr");
  struct ibv_qp_init_attr wish = {
      .send_cq = cq, .recv_cq = cq, .cap = {16, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  if (rdma_create_qp(id, pd, &wish) != 0) die("rdma_create_qp");
  struct rdma_conn_param parameters = {
      .retry_count = kRetries, .responder_resources = 1, .initiator_depth = 1};
  if (rdma_connect(id, &parameters) != 0) die("rdma_connect");
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);

  // Nothing but empty WRITEs, which need no receive and no key over there.
  printf("writing\n");
  struct ibv_sge part = {(uintptr_t)buffer, 0, mr->lkey};
  struct ibv_send_wr write = {
      .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_wc done = {.status = IBV_WC_SUCCESS};
  double begun = seconds();
  while (done.status == IBV_WC_SUCCESS) {
    struct ibv_send_wr* bad;
    begun = seconds();
    if (ibv_post_send(id->qp, &write, &bad) != 0) die("ibv_post_send");
    while (ibv_poll_cq(cq, 1, &done) == 0)
      if (seconds() - begun > kPatienceMs / 1000) return printf("no completion\n"), 1;
    usleep(1000);
  }
  printf("%s after %.1f s\n", ibv_wc_status_str(done.status), seconds() - begun);
  if (done.status != IBV_WC_RETRY_EXC_ERR) return 1;
  begun = seconds();
  if (rdma_disconnect(id) != 0) die("rdma_disconnect");
  const enum rdma_cm_event_type end = next_event(channel);
  printf("%s after %.1f s\n", rdma_event_str(end), seconds() - begun);
  rdma_destroy_qp(id);
  return end == RDMA_CM_EVENT_DISCONNECTED || end == RDMA_CM_EVENT_UNREACHABLE ? 0 : 1;
}
