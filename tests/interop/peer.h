// What the parts of peer.c share: the options, one queue pair with its memory, and what the ends tell each
// other.
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
  const char* device;   // NULL: the first
  const char* server;   // NULL: we are the server
  const char* service;  // rc or uc
  int gid_index;
  int port;  // TCP, for the ends to find each other
  int mtu;
  int timeout;    // as in ibv_qp_attr: 4.096 us * 2^timeout
  int retries;    // of a timeout
  int rnr_retry;  // 7: for ever
  int messages;
  size_t bytes;  // of each message
};

// What one end tells the other over TCP, in this machine's byte order.
struct card {
  uint32_t qpn, psn, rkey;
  uint32_t read_only_rkey;  // of the same memory, without the right to write
  uint64_t address;
  uint8_t gid[16];
};

struct peer {
  struct options options;
  int tcp;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr *mr, *read_only;
  uint8_t* memory;  // all messages one after the other, and 64 bytes more
  struct card own, other;
};

// Both end the program with a sentence if something fails that no test is about.
void open_peer(struct peer* peer);
void meet(struct peer* peer);

// Both ends come here, then both go on.
void barrier(struct peer* peer);

void fill(struct peer* peer, unsigned seed);
// Says where the first wrong byte is.
bool holds(const struct peer* peer, unsigned seed);

struct ibv_sge piece(const struct peer* peer, int message, size_t bytes);
void post_receive(struct peer* peer, int message, size_t bytes);
void post(struct peer* peer, enum ibv_wr_opcode opcode, int message, uint32_t rkey, uint64_t offset);
// The next completion's status; -1: none came in that time.
int next_status(struct peer* peer, double seconds, struct ibv_wc* found);
double now(void);
