// A raw UDP ping-pong, both ends spinning: what a message costs where nothing is made of UDP.
//
//   udp_peer serve PORT ADDRESS                one client, then ends
//   udp_peer lat PORT SIZE ITERS ADDRESS       prints "latency_us N", the median of half round trips
//   udp_peer steered PORT SIZE ITERS ADDRESS   the same by sockets as RoCEv2 needs them
//
// Sockets aren't connected, as RoCEv2's must not be (the kernel then sets another IPv4 ID). Steered ones are
// of both families and one of a group that shares its port by a filter, they tell each packet's destination,
// which the ICRC covers, and take several at once; and each message has an acknowledgement as a second
// packet. Nothing is made of any of it: it is the least that such a message costs in the kernel. A TCP
// connection on the same port says when the server is there, and how many round trips there will be.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "segments.h"

enum { kLargest = 65507, kHeaders = 16, kAcknowledgement = 20 };

// What the client asks for; both are the same binary on the same machine.
struct Plan {
  uint64_t size, iterations;
  uint16_t port;  // the client's, in network order
  bool steered;
};

// Where datagrams come in, and by what they leave: one socket, or two.
struct Ends {
  int in, out;
  bool steered;
};

static void fail(const char* what) {
  fprintf(stderr, "udp_peer: %s: %s\n", what, strerror(errno));
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

static int new_socket(int type) {
  int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  return fd;
}

static void set_option(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) fail("setsockopt");
}

static int new_steered(uint16_t port) {
  struct sock_filter first[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 5), BPF_STMT(BPF_RET | BPF_K, 0)};
  const struct sock_fprog program = {2, first};
  struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = port};
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
  set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  if (bind(fd, (struct sockaddr*)&any, sizeof any) != 0) fail("bind");
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) != 0) fail("steering");
  return fd;
}

// `own`: what to bind to.
static struct Ends make_ends(bool steered, const struct sockaddr_in* own) {
  struct Ends ends = {.in = steered ? new_steered(own->sin_port) : new_socket(SOCK_DGRAM),
                      .steered = steered};
  struct sockaddr_in source = *own;
  source.sin_port = steered ? 0 : own->sin_port;
  ends.out = steered ? new_socket(SOCK_DGRAM) : ends.in;
  if (bind(ends.out, (struct sockaddr*)&source, sizeof source) != 0) fail("bind");
  return ends;
}

static uint16_t port_of(int fd) {
  struct sockaddr_in6 own = {0};
  socklen_t length = sizeof own;
  if (getsockname(fd, (struct sockaddr*)&own, &length) != 0) fail("getsockname");
  return own.sin6_port;  // at the same place in both families
}

static ssize_t send_steered(int fd, char* data, size_t size, const struct sockaddr_in* to) {
  return send_segments(fd, to, data, size + kHeaders + kAcknowledgement, (uint16_t)(size + kHeaders));
}

static void send_one(const struct Ends* ends, char* data, size_t size, const struct sockaddr_in* to) {
  while ((ends->steered
              ? send_steered(ends->out, data, size, to)
              : sendto(ends->out, data, size, MSG_DONTWAIT, (const struct sockaddr*)to, sizeof *to)) < 0)
    if (errno != EAGAIN && errno != EINTR) fail("send");
}

static ssize_t receive_steered(int fd, char* data) {
  struct sockaddr_in6 from;
  char control[256];
  struct iovec bytes = {data, kLargest};
  struct msghdr header = {.msg_name = &from,
                          .msg_namelen = sizeof from,
                          .msg_iov = &bytes,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control};
  return recvmsg(fd, &header, MSG_DONTWAIT);
}

// A lost datagram would have both wait for ever: the caller of this program has a time limit. `size`: what
// must come; where a link takes message and acknowledgement apart, the figure would be of something else.
static void receive_one(const struct Ends* ends, char* data, size_t size, struct sockaddr_in* from) {
  const size_t whole = size + (ends->steered ? kHeaders + kAcknowledgement : 0);
  socklen_t length = sizeof *from;
  ssize_t got;
  while ((got = ends->steered
                    ? receive_steered(ends->in, data)
                    : recvfrom(ends->in, data, kLargest, MSG_DONTWAIT, (struct sockaddr*)from, &length)) < 0)
    if (errno != EAGAIN && errno != EINTR) fail("receive");
  errno = EBADMSG;
  if ((size_t)got != whole) fail("a datagram's length");
}

static int serve(const char* port, const char* host) {
  int listener = new_socket(SOCK_STREAM);
  struct sockaddr_in own = address_of(host, port), client;
  socklen_t length = sizeof client;
  set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(listener, (struct sockaddr*)&own, sizeof own) != 0 || listen(listener, 1) != 0) fail("listen");
  int control = accept(listener, (struct sockaddr*)&client, &length);
  struct Plan plan;
  if (control < 0 || recv(control, &plan, sizeof plan, MSG_WAITALL) != sizeof plan) fail("accept");
  const struct Ends ends = make_ends(plan.steered, &own);
  client.sin_port = plan.port;
  if (send(control, "", 1, MSG_NOSIGNAL) != 1) fail("send");
  static char buffer[kLargest];
  struct sockaddr_in from;
  for (uint64_t i = 0; i < plan.iterations; ++i) {
    receive_one(&ends, buffer, plan.size, &from);
    send_one(&ends, buffer, plan.size, &client);
  }
  return 0;
}

static int by_value(const void* left, const void* right) {
  uint64_t a = *(const uint64_t*)left, b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

static int measure(struct Plan* plan, const char* port, const char* host) {
  int control = new_socket(SOCK_STREAM);
  struct sockaddr_in server = address_of(host, port), own, from;
  socklen_t length = sizeof own;
  if (connect(control, (struct sockaddr*)&server, sizeof server) != 0) fail("connect");
  if (getsockname(control, (struct sockaddr*)&own, &length) != 0) fail("getsockname");
  own.sin_port = 0;
  const struct Ends ends = make_ends(plan->steered, &own);
  plan->port = port_of(ends.in);
  char ready;
  if (send(control, plan, sizeof *plan, MSG_NOSIGNAL) != sizeof *plan) fail("send");
  if (recv(control, &ready, 1, MSG_WAITALL) != 1) fail("the server");
  static char buffer[kLargest];
  uint64_t* took = malloc(plan->iterations * sizeof *took);
  if (took == NULL) fail("memory");
  for (uint64_t i = 0; i < plan->iterations; ++i) {
    uint64_t start = now_ns();
    send_one(&ends, buffer, plan->size, &server);
    receive_one(&ends, buffer, plan->size, &from);
    took[i] = now_ns() - start;
  }
  qsort(took, plan->iterations, sizeof *took, by_value);
  printf("latency_us %.4f\n", (double)took[plan->iterations / 2] / 2e3);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  const bool steered = argc == 6 && strcmp(argv[1], "steered") == 0;
  if (steered || (argc == 6 && strcmp(argv[1], "lat") == 0)) {
    struct Plan plan = {strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), 0, steered};
    if (plan.size > 0 && plan.size <= kLargest - kHeaders - kAcknowledgement && plan.iterations > 0)
      return measure(&plan, argv[2], argv[5]);
  }
  fprintf(stderr, "usage: udp_peer serve PORT ADDRESS | udp_peer lat|steered PORT SIZE ITERATIONS ADDRESS\n");
  return 2;
}
