// How long a connection takes to be made: RDMA CM's and TCP's, one after the other in the same run.
//
//   connect_peer serve PORT ADDRESS         accepts both kinds until the client's last TCP byte
//   connect_peer ask PORT ITERS ADDRESS     prints "key value" lines, medians in microseconds
//
//   rdma_connect_us   rdma_connect() until ESTABLISHED; addresses are resolved and the queue pair is made
//   before rdma_whole_us     the same with both: rdma_create_id() until ESTABLISHED tcp_accept_us connect()
//   until a byte comes that the server sends when its accept() has returned tcp_connect_us    connect()
//   alone, which returns before anybody has accepted
//
// Both ends sleep while they wait, as programs do that connect.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char* what) {
  fprintf(stderr, "connect_peer: %s: %s\n", what, strerror(errno));
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

static void make_queue_pair(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr wanted = {
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  if (rdma_create_qp(id, NULL, &wanted) != 0) fail("rdma_create_qp");
}

static void end(struct rdma_cm_id* id) {
  rdma_destroy_qp(id);
  if (rdma_destroy_id(id) != 0) fail("rdma_destroy_id");
}

static void* serve_rdma(void* given) {
  struct rdma_event_channel* channel = given;
  for (;;) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event) != 0) fail("rdma_get_cm_event");
    struct rdma_cm_id* id = event->id;
    enum rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      make_queue_pair(id);
      if (rdma_accept(id, NULL) != 0) fail("rdma_accept");
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(id);
      end(id);
    }
  }
  return NULL;
}

static int serve(const char* port, const char* host) {
  struct sockaddr_in address = address_of(host, port);
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* listener;
  if (channel == NULL || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  if (rdma_bind_addr(listener, (struct sockaddr*)&address) != 0 || rdma_listen(listener, 16) != 0)
    fail("rdma_listen");
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve_rdma, channel) != 0) fail("pthread_create");

  int fd = socket(AF_INET, SOCK_STREAM, 0);
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr*)&address, sizeof address) != 0 || listen(fd, 16) != 0) fail("listen");
  for (char byte = 0; byte != 'e';) {
    int one = accept(fd, NULL, NULL);
    if (one < 0) fail("accept");
    if (send(one, "a", 1, MSG_NOSIGNAL) != 1) fail("send");
    if (recv(one, &byte, 1, 0) < 0) fail("recv");
    close(one);
  }
  exit(0);  // with the other thread
}

struct Took {
  uint64_t connect, whole;
};

static struct Took connect_tcp(struct sockaddr_in address, int last) {
  struct Took took;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  uint64_t start = now_ns();
  if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) fail("connect");
  took.connect = now_ns() - start;
  char byte;
  if (recv(fd, &byte, 1, 0) != 1) fail("recv");
  took.whole = now_ns() - start;
  if (last && send(fd, "e", 1, 0) != 1) fail("send");
  close(fd);
  return took;
}

static void expect(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) fail("rdma_get_cm_event");
  if (event->event != type) {
    fprintf(stderr, "connect_peer: error: %s came instead of %s\n", rdma_event_str(event->event),
            rdma_event_str(type));
    exit(1);
  }
  rdma_ack_cm_event(event);
}

static struct Took connect_rdma(struct rdma_event_channel* channel, struct sockaddr_in address) {
  struct Took took;
  struct rdma_cm_id* id;
  uint64_t start = now_ns();
  if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) fail("rdma_create_id");
  if (rdma_resolve_addr(id, NULL, (struct sockaddr*)&address, 2000) != 0) fail("rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  if (rdma_resolve_route(id, 2000) != 0) fail("rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_queue_pair(id);
  uint64_t prepared = now_ns();
  if (rdma_connect(id, NULL) != 0) fail("rdma_connect");
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  uint64_t established = now_ns();
  took.connect = established - prepared;
  took.whole = established - start;
  if (rdma_disconnect(id) != 0) fail("rdma_disconnect");
  expect(channel, RDMA_CM_EVENT_DISCONNECTED);
  end(id);
  return took;
}

static int by_value(const void* a, const void* b) {
  uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

static void print_median(const char* name, uint64_t* took, uint64_t count) {
  qsort(took, count, sizeof *took, by_value);
  printf("%s %.3f\n", name, (double)took[count / 2] / 1e3);
}

static int ask(const char* port, uint64_t count, const char* host) {
  struct sockaddr_in address = address_of(host, port);
  struct rdma_event_channel* channel = rdma_create_event_channel();
  uint64_t* took = calloc(4 * count, sizeof *took);
  if (channel == NULL || took == NULL) fail("starting");
  connect_rdma(channel, address);  // the first of a process opens devices
  for (uint64_t i = 0; i < count; ++i) {
    struct Took rdma = connect_rdma(channel, address);
    struct Took tcp = connect_tcp(address, i + 1 == count);
    took[i] = rdma.connect;
    took[count + i] = rdma.whole;
    took[2 * count + i] = tcp.whole;
    took[3 * count + i] = tcp.connect;
  }
  print_median("rdma_connect_us", took, count);
  print_median("rdma_whole_us", took + count, count);
  print_median("tcp_accept_us", took + 2 * count, count);
  print_median("tcp_connect_us", took + 3 * count, count);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  if (argc == 5 && strcmp(argv[1], "ask") == 0 && atoi(argv[3]) > 0)
    return ask(argv[2], strtoull(argv[3], NULL, 10), argv[4]);
  fprintf(stderr, "usage: connect_peer serve PORT ADDRESS | connect_peer ask PORT ITERATIONS ADDRESS\n");
  return 2;
}
