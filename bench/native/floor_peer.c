// The least that a RoCEv2 engine does for a long message, and nothing else: each packet copied out of the
// program's buffer and given a CRC, sent in runs by UDP_SEGMENT; received by UDP_GRO, the CRC checked, the
// bytes copied to where they belong. No headers are made, no keys looked up, nothing is sent again: what a
// real engine can come close to.
//
//   floor_peer serve PORT ADDRESS                         one client, then ends
//   floor_peer stream PORT SIZE ITERS PAYLOAD ADDRESS     prints "bandwidth_mib_s N"
//   floor_peer bare PORT SIZE ITERS PAYLOAD ADDRESS       the same without copies and CRCs: the kernel's part
//
// A message goes in two runs, as a WRITE must: its first packet is longer than those that follow. The server
// says by a datagram how many messages it has; at most kAhead are under way.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <libdeflate.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "segments.h"

enum { kHeader = 12, kTrailer = 4, kMostInRun = 60, kRunBytes = 65000, kAhead = 8, kBuffer = 8 << 20 };

struct Plan {
  uint64_t size, iterations, payload;
  uint64_t bare;  // the bytes are whatever lies there
};

static void fail(const char* what) {
  fprintf(stderr, "floor_peer: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  errno = EINVAL;
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

static int new_socket(int type) {
  int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), bytes = kBuffer, on = 1;
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  if (type == SOCK_DGRAM) setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
  return fd;
}

// Bytes of the message from `offset` on, in up to `most` packets; how many bytes of it that were.
static size_t send_run(int fd, const struct sockaddr_in* to, const struct Plan* plan, const char* message,
                       size_t left, size_t most) {
  static char run[kRunBytes + 8192];
  const size_t payload = plan->payload, packet = kHeader + payload + kTrailer;
  size_t used = 0, taken = 0;
  for (size_t i = 0; i < most && taken < left && used + packet <= kRunBytes; ++i) {
    const size_t part = left - taken < payload ? left - taken : payload;
    if (!plan->bare) {
      memcpy(run + used + kHeader, message + taken, part);
      const uint32_t crc = libdeflate_crc32(0, run + used, kHeader + part);
      memcpy(run + used + kHeader + part, &crc, sizeof crc);
    }
    used += kHeader + part + kTrailer;
    taken += part;
  }
  while (send_segments(fd, to, run, used, (uint16_t)packet) < 0)
    if (errno != EAGAIN && errno != EINTR) fail("sendmsg");
  return taken;
}

static size_t segment_of(struct msghdr* header, size_t all) {
  for (struct cmsghdr* c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c))
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      int bytes = 0;
      memcpy(&bytes, CMSG_DATA(c), sizeof bytes);
      return (size_t)bytes;
    }
  return all;
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
  char* target = malloc(plan.size);
  static char buffer[1 << 16];
  if (target == NULL) fail("memory");
  uint64_t offset = 0;
  for (uint64_t messages = 0; messages < plan.iterations;) {
    char told[256];
    struct iovec bytes = {buffer, sizeof buffer};
    struct msghdr header = {.msg_name = &from,
                            .msg_namelen = sizeof from,
                            .msg_iov = &bytes,
                            .msg_iovlen = 1,
                            .msg_control = told,
                            .msg_controllen = sizeof told};
    const ssize_t got = recvmsg(udp, &header, MSG_DONTWAIT);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) fail("recvmsg");
      continue;
    }
    const size_t segment = segment_of(&header, (size_t)got);
    for (size_t at = 0; at < (size_t)got; at += segment) {
      const size_t packet = (size_t)got - at < segment ? (size_t)got - at : segment;
      const size_t part = packet - kHeader - kTrailer;
      uint32_t crc;
      memcpy(&crc, buffer + at + packet - kTrailer, sizeof crc);
      errno = EBADMSG;
      if (offset + part > plan.size ||
          (!plan.bare && crc != libdeflate_crc32(0, buffer + at, packet - kTrailer)))
        fail("a packet was lost");
      if (!plan.bare) memcpy(target + offset, buffer + at + kHeader, part);
      offset += part;
      if (offset < plan.size) continue;
      offset = 0;
      ++messages;
      sendto(udp, &messages, sizeof messages, 0, (struct sockaddr*)&from, sizeof from);
    }
  }
  return 0;
}

static int stream(const struct Plan* plan, const char* port, const char* host) {
  int udp = new_socket(SOCK_DGRAM), control = new_socket(SOCK_STREAM);
  struct sockaddr_in server = address_of(host, port);
  if (connect(control, (struct sockaddr*)&server, sizeof server) != 0) fail("connect");
  if (send(control, plan, sizeof *plan, MSG_NOSIGNAL) != sizeof *plan) fail("send");
  char* message = calloc(1, plan->size);
  if (message == NULL) fail("memory");
  const double start = now_s();
  for (uint64_t sent = 0, answered = 0; answered < plan->iterations;) {
    if (sent < plan->iterations && sent - answered < kAhead) {
      size_t done = send_run(udp, &server, plan, message, plan->size, 2);
      while (done < plan->size)
        done += send_run(udp, &server, plan, message + done, plan->size - done, kMostInRun + 2);
      ++sent;
    }
    uint64_t counts[128];
    const ssize_t got = recv(udp, counts, sizeof counts, MSG_DONTWAIT);
    if (got >= (ssize_t)sizeof counts[0]) answered = counts[(size_t)got / sizeof counts[0] - 1];
  }
  printf("bandwidth_mib_s %.1f\n", (double)(plan->size * plan->iterations) / (now_s() - start) / 1048576.0);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) return serve(argv[2], argv[3]);
  const int bare = argc == 7 && strcmp(argv[1], "bare") == 0;
  if (bare || (argc == 7 && strcmp(argv[1], "stream") == 0)) {
    struct Plan plan = {strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10),
                        (uint64_t)bare};
    if (plan.size > 0 && plan.iterations > 0 && plan.payload >= 256 && plan.payload <= 4096)
      return stream(&plan, argv[2], argv[6]);
  }
  fprintf(
      stderr,
      "usage: floor_peer serve PORT ADDRESS | floor_peer stream|bare PORT SIZE ITERATIONS PAYLOAD ADDRESS\n");
  return 2;
}
