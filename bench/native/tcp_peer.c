// TCP over loopback as a peer of the benchmarks: what a program without RDMA would use between two processes.
//
//   tcp_peer serve PORT [ADDRESS]                         one connection, then ends
//   tcp_peer lat|get|stream PORT SIZE ITERS [ADDRESS]     prints "key value" lines
//
// ADDRESS is the server's, by default 127.0.0.1.
//   lat     ping-pong of SIZE bytes, half a round trip: the peer of SEND and WRITE latency
//   get     8-byte request, SIZE bytes back, the whole round trip: the peer of READ latency
//   stream  SIZE bytes a send(), one way, no framing: the peer of bandwidth and message rate
//
// Both ends spin in ping-pongs, because the RDMA benchmarks spin too. The stream spins for large messages
// only: small ones are twice as fast when the receiver sleeps until there is something to gather. Each takes
// what suits TCP best.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum Mode { kLat, kGet, kStream, kModes };
static const char* const kModeNames[kModes] = {"lat", "get", "stream"};
enum { kRequestBytes = 8, kStreamBufferBytes = 256 << 10, kSpinningStreamBytes = 64 << 10 };

// What the client asks the server to play; both are the same binary on the same host.
struct Plan {
  uint64_t mode, size, iterations;
};

static void fail(const char* what) {
  fprintf(stderr, "tcp_peer: %s: %s\n", what, strerror(errno));
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static int stream_flags(uint64_t size) { return size >= kSpinningStreamBytes ? MSG_DONTWAIT : 0; }

static void send_all(int fd, const char* data, size_t size, int flags) {
  while (size > 0) {
    ssize_t sent = send(fd, data, size, flags | MSG_NOSIGNAL);
    if (sent < 0 && would_block()) continue;
    if (sent <= 0) fail("send");
    data += sent;
    size -= (size_t)sent;
  }
}

static void receive_all(int fd, char* data, size_t size, int flags) {
  while (size > 0) {
    ssize_t got = recv(fd, data, size, flags);
    if (got < 0 && would_block()) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) fail("recv");
    data += got;
    size -= (size_t)got;
  }
}

// Loopback would use the host's default, which may be bbr: that paces, and halves the bandwidth of loopback.
static void prefer_cubic(int fd) { (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); }

static int new_socket(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  prefer_cubic(fd);
  return fd;
}

static struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  errno = EINVAL;
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

// Ping-pongs want each message out at once; a stream of small messages is faster when the kernel may gather
// them.
static void set_no_delay(int fd, uint64_t mode) {
  int on = mode != kStream;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
}

static char* new_buffer(size_t size) {
  char* buffer = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (buffer == NULL) fail("memory");
  memset(buffer, 1, size);
  return buffer;
}

static int serve(const char* port, const char* host) {
  int listener = new_socket(), on = 1;
  struct sockaddr_in address = address_of(host, port);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr*)&address, sizeof address) != 0 || listen(listener, 1) != 0)
    fail("listen");
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");

  struct Plan plan;
  receive_all(fd, (char*)&plan, sizeof plan, 0);
  set_no_delay(fd, plan.mode);
  size_t buffer_size = plan.size < kStreamBufferBytes ? kStreamBufferBytes : plan.size;
  char* buffer = new_buffer(buffer_size);
  if (plan.mode == kStream) {
    // Through the whole buffer, as messages of an RDMA benchmark fill theirs: large ones don't stay in the
    // cache.
    size_t at = 0;
    for (uint64_t left = plan.size * plan.iterations; left > 0;) {
      size_t room = buffer_size - at;
      ssize_t got = recv(fd, buffer + at, left < room ? left : room, stream_flags(plan.size));
      if (got < 0 && would_block()) continue;
      if (got <= 0) fail("recv");
      left -= (uint64_t)got;
      at = (at + (size_t)got) % buffer_size;
    }
    send_all(fd, buffer, 1, 0);
  } else {
    for (uint64_t i = 0; i < plan.iterations; ++i) {
      receive_all(fd, buffer, plan.mode == kGet ? kRequestBytes : plan.size, MSG_DONTWAIT);
      send_all(fd, buffer, plan.size, MSG_DONTWAIT);
    }
  }
  return 0;
}

static int by_value(const void* left, const void* right) {
  uint64_t a = *(const uint64_t*)left, b = *(const uint64_t*)right;
  return (a > b) - (a < b);
}

static void measure_round_trips(int fd, const struct Plan* plan, char* buffer) {
  uint64_t* took = malloc(plan->iterations * sizeof *took);
  if (took == NULL) fail("memory");
  for (uint64_t i = 0; i < plan->iterations; ++i) {
    uint64_t start = now_ns();
    send_all(fd, buffer, plan->mode == kGet ? kRequestBytes : plan->size, MSG_DONTWAIT);
    receive_all(fd, buffer, plan->size, MSG_DONTWAIT);
    took[i] = now_ns() - start;
  }
  qsort(took, plan->iterations, sizeof *took, by_value);
  double median_us = (double)took[plan->iterations / 2] / 1e3;
  printf("latency_us %.4f\n", plan->mode == kGet ? median_us : median_us / 2);
}

static void measure_stream(int fd, const struct Plan* plan, char* buffer) {
  uint64_t start = now_ns();
  for (uint64_t i = 0; i < plan->iterations; ++i) send_all(fd, buffer, plan->size, stream_flags(plan->size));
  receive_all(fd, buffer, 1, 0);  // the server has all of it
  double seconds = (double)(now_ns() - start) / 1e9;
  printf("bandwidth_mib_s %.4f\n", (double)plan->size * (double)plan->iterations / seconds / (1 << 20));
  printf("rate_mops %.6f\n", (double)plan->iterations / seconds / 1e6);
}

static int ask(const struct Plan* plan, const char* port, const char* host) {
  int fd = new_socket();
  struct sockaddr_in address = address_of(host, port);
  if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) fail("connect");
  char congestion[16] = "";
  socklen_t length = sizeof congestion;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &length) == 0)
    printf("congestion %.16s\n", congestion);
  send_all(fd, (const char*)plan, sizeof *plan, 0);
  set_no_delay(fd, plan->mode);
  char* buffer = new_buffer(plan->size < kRequestBytes ? kRequestBytes : plan->size);
  (plan->mode == kStream ? measure_stream : measure_round_trips)(fd, plan, buffer);
  return 0;
}

int main(int argc, char** argv) {
  const char* loopback = "127.0.0.1";
  if ((argc == 3 || argc == 4) && strcmp(argv[1], "serve") == 0)
    return serve(argv[2], argc == 4 ? argv[3] : loopback);
  if (argc == 5 || argc == 6) {
    struct Plan plan = {.size = strtoull(argv[3], NULL, 10), .iterations = strtoull(argv[4], NULL, 10)};
    while (plan.mode < kModes && strcmp(argv[1], kModeNames[plan.mode]) != 0) ++plan.mode;
    if (plan.mode < kModes && plan.size > 0 && plan.iterations > 0)
      return ask(&plan, argv[2], argc == 6 ? argv[5] : loopback);
  }
  fprintf(stderr,
          "usage: tcp_peer serve PORT [ADDRESS] | tcp_peer lat|get|stream PORT SIZE ITERATIONS [ADDRESS]\n");
  return 2;
}
