// A raw UDP ping-pong, both ends spinning: what a message costs where nothing is made of UDP.
//
//   udp_peer serve PORT ADDRESS                one client, then ends
//   udp_peer lat PORT SIZE ITERS ADDRESS       prints "latency_us N", the median of half round trips
//
// Sockets aren't connected, as RoCEv2's must not be (the kernel then sets another IPv4 ID). A TCP connection
// on the same port says when the server is there, and how many round trips there will be.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kLargest = 65507 };

// What the client asks for; both are the same binary on the same machine.
struct Plan {
  uint64_t size, iterations;
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

static void send_one(int fd, const char* data, size_t size, const struct sockaddr_in* to) {
  while (sendto(fd, data, size, MSG_DONTWAIT, (const struct sockaddr*)to, sizeof *to) < 0)
    if (errno != EAGAIN && errno != EINTR) fail("sendto");
}

// A lost datagram would have both wait for ever: the caller of this program has a time limit.
static void receive_one(int fd, char* data, size_t size, struct sockaddr_in* from) {
  socklen_t length = sizeof *from;
  while (recvfrom(fd, data, size, MSG_DONTWAIT, (struct sockaddr*)from, &length) < 0)
    if (errno != EAGAIN && errno != EINTR) fail("recvfrom");
}

static int serve(const char* port, const char* host) {
  int udp = new_socket(SOCK_DGRAM), listener = new_socket(SOCK_STREAM), on = 1;
  struct sockaddr_in own = address_of(host, port), from;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(udp, (struct sockaddr*)&own, sizeof own) != 0) fail("bind");
  if (bind(listener, (struct sockaddr*)&own, sizeof own) != 0 || listen(listener, 1) != 0) fail("listen");
  int control = accept(listener, NULL, NULL);
  struct Plan plan;
  if (control < 0 || recv(control, &plan, sizeof plan, MSG_WAITALL) != sizeof plan) fail("accept");
  static char buffer[kLargest];
  for (uint64_t i = 0; i < plan.iterations; ++i) {
    receive_one(udp, buffer, plan.size, &from);
    send_one(udp, buffer, plan.size, &from);
  }
  return 0;
}

static int by_value(const void* left, const void* right) {
  uint64_t a = *(const uint64_t*)left, b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

static int measure(const struct Plan* plan, const char* port, const char* host) {
  int udp = new_socket(SOCK_DGRAM), control = new_socket(SOCK_STREAM);
  struct sockaddr_in server = address_of(host, port), from;
  if (connect(control, (struct sockaddr*)&server, sizeof server) != 0) fail("connect");
  if (send(control, plan, sizeof *plan, MSG_NOSIGNAL) != sizeof *plan) fail("send");
  static char buffer[kLargest];
  uint64_t* took = malloc(plan->iterations * sizeof *took);
  if (took == NULL) fail("memory");
  for (uint64_t i = 0; i < plan->iterations; ++i) {
    uint64_t start = now_ns();
    send_one(udp, buffer, plan->size, &server);
    receive_one(udp, buffer, plan->size, &from);
    took[i] = now_ns() - start;
  }
  qsort(took, plan->iterations, sizeof *took, by_value);
  printf("latency_us %.4f\n", (double)took[plan->iterations / 2] / 2e3);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  if (argc == 6 && strcmp(argv[1], "lat") == 0) {
    struct Plan plan = {.size = strtoull(argv[3], NULL, 10), .iterations = strtoull(argv[4], NULL, 10)};
    if (plan.size > 0 && plan.size <= kLargest && plan.iterations > 0)
      return measure(&plan, argv[2], argv[5]);
  }
  fprintf(stderr, "usage: udp_peer serve PORT ADDRESS | udp_peer lat PORT SIZE ITERATIONS ADDRESS\n");
  return 2;
}
