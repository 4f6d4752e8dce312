// The scenarios of peer.c: what the client asks, what both ends check.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

struct scenario {
  const char* name;
  bool (*client)(struct peer* peer);
  bool (*server)(struct peer* peer);
};

// How long to wait for what should come; the peer may be an emulated machine.
static const double kPatience = 30;

static uint8_t pattern(size_t at, unsigned seed) {
  return (uint8_t)((at * 2654435761u >> 13) + (at >> 12) + seed);
}

void fill(struct peer* peer, unsigned seed) {
  const size_t bytes = peer->options.bytes * (size_t)peer->options.messages;
  for (size_t at = 0; at < bytes; ++at) peer->memory[at] = pattern(at, seed);
}

bool holds(const struct peer* peer, unsigned seed) {
  const size_t bytes = peer->options.bytes * (size_t)peer->options.messages;
  for (size_t at = 0; at < bytes; ++at) {
    if (peer->memory[at] == pattern(at, seed)) continue;
    printf("byte %zu of %zu is %u, expected %u\n", at, bytes, peer->memory[at], pattern(at, seed));
    return false;
  }
  return true;
}

static bool ends_as(struct peer* peer, const char* what, enum ibv_wc_status wanted, struct ibv_wc* wc) {
  const int status = next_status(peer, kPatience, wc);
  if (status == (int)wanted) return true;
  printf("%s: %s, expected %s\n", what,
         status < 0 ? "no completion" : ibv_wc_status_str((enum ibv_wc_status)status),
         ibv_wc_status_str(wanted));
  return false;
}

static bool all_succeed(struct peer* peer, const char* what) {
  for (int i = 0; i < peer->options.messages; ++i)
    if (!ends_as(peer, what, IBV_WC_SUCCESS, NULL)) return false;
  return true;
}

static size_t offset(const struct peer* peer, int message) { return peer->options.bytes * (size_t)message; }

// --- data arrive as they were sent ---

static bool client_of_transfer(struct peer* peer, enum ibv_wr_opcode opcode) {
  fill(peer, 1);
  meet(peer);
  barrier(peer);
  for (int i = 0; i < peer->options.messages; ++i) post(peer, opcode, i, peer->other.rkey, offset(peer, i));
  const bool fine = all_succeed(peer, "request");
  barrier(peer);  // an unreliable service has nobody to say that it arrived
  return fine;
}

static bool receive_all(struct peer* peer, bool immediate) {
  meet(peer);
  for (int i = 0; i < peer->options.messages; ++i) post_receive(peer, i, peer->options.bytes);
  barrier(peer);
  bool fine = true;
  for (int i = 0; fine && i < peer->options.messages; ++i) {
    struct ibv_wc wc;
    fine = ends_as(peer, "receive", IBV_WC_SUCCESS, &wc);
    if (fine && wc.byte_len != peer->options.bytes) fine = printf("%u bytes came\n", wc.byte_len) < 0;
    if (fine && immediate && ntohl(wc.imm_data) != 0x1000u + (unsigned)i)
      fine = printf("immediate %x\n", ntohl(wc.imm_data)) < 0;
  }
  barrier(peer);
  return fine && holds(peer, 1);
}

static bool client_send(struct peer* peer) { return client_of_transfer(peer, IBV_WR_SEND); }
static bool client_send_imm(struct peer* peer) { return client_of_transfer(peer, IBV_WR_SEND_WITH_IMM); }
static bool client_write(struct peer* peer) { return client_of_transfer(peer, IBV_WR_RDMA_WRITE); }
static bool client_write_imm(struct peer* peer) {
  return client_of_transfer(peer, IBV_WR_RDMA_WRITE_WITH_IMM);
}
static bool server_receives(struct peer* peer) { return receive_all(peer, false); }
static bool server_receives_imm(struct peer* peer) { return receive_all(peer, true); }

static bool server_is_written(struct peer* peer) {
  meet(peer);
  barrier(peer);
  barrier(peer);
  // On UC the last packets may still be on their way when TCP says that all were sent.
  if (peer->qp->qp_type == IBV_QPT_UC) usleep(500000);
  return holds(peer, 1);
}

static bool client_read(struct peer* peer) {
  meet(peer);
  barrier(peer);
  for (int i = 0; i < peer->options.messages; ++i)
    post(peer, IBV_WR_RDMA_READ, i, peer->other.rkey, offset(peer, i));
  const bool fine = all_succeed(peer, "read") && holds(peer, 2);
  barrier(peer);
  return fine;
}

static bool server_is_read(struct peer* peer) {
  fill(peer, 2);
  meet(peer);
  barrier(peer);
  barrier(peer);
  return holds(peer, 2);
}

// --- atomics: one word at the server, each answer the value before ---

static bool client_of_atomics(struct peer* peer, enum ibv_wr_opcode opcode, uint64_t step) {
  meet(peer);
  barrier(peer);
  for (int i = 0; i < peer->options.messages; ++i) post(peer, opcode, i, peer->other.rkey, 0);
  bool fine = all_succeed(peer, "atomic");
  for (int i = 0; fine && i < peer->options.messages; ++i) {
    uint64_t before;
    memcpy(&before, peer->memory + offset(peer, i), 8);
    if (before != (uint64_t)i * step) fine = printf("atomic %d found %lu\n", i, (unsigned long)before) < 0;
  }
  barrier(peer);
  return fine;
}

static bool server_of_atomics(struct peer* peer, uint64_t step) {
  meet(peer);
  barrier(peer);
  barrier(peer);
  uint64_t word;
  memcpy(&word, peer->memory, 8);
  if (word == step * (uint64_t)peer->options.messages) return true;
  printf("the word is %lu\n", (unsigned long)word);
  return false;
}

static bool client_add(struct peer* peer) { return client_of_atomics(peer, IBV_WR_ATOMIC_FETCH_AND_ADD, 3); }
static bool server_add(struct peer* peer) { return server_of_atomics(peer, 3); }
static bool client_swap(struct peer* peer) { return client_of_atomics(peer, IBV_WR_ATOMIC_CMP_AND_SWP, 1); }
static bool server_swap(struct peer* peer) { return server_of_atomics(peer, 1); }

// --- no receive is posted: for a while, or ever ---

static bool server_late(struct peer* peer) {
  meet(peer);
  barrier(peer);
  usleep(300000);
  for (int i = 0; i < peer->options.messages; ++i) post_receive(peer, i, peer->options.bytes);
  const bool fine = all_succeed(peer, "receive");
  barrier(peer);
  return fine && holds(peer, 1);
}

static bool client_unheard(struct peer* peer) {
  meet(peer);
  barrier(peer);
  post(peer, IBV_WR_SEND, 0, 0, 0);
  const bool fine = ends_as(peer, "send", IBV_WC_RNR_RETRY_EXC_ERR, NULL);
  barrier(peer);
  return fine;
}

static bool server_idle(struct peer* peer) {
  meet(peer);
  barrier(peer);
  barrier(peer);
  return true;
}

// --- what the responder refuses ---

static bool is_refused(struct peer* peer, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t at) {
  post(peer, opcode, 0, rkey, at);
  post(peer, opcode, 0, rkey, at);  // behind the refused one: flushed
  const bool fine = ends_as(peer, "the refused request", IBV_WC_REM_ACCESS_ERR, NULL) &&
                    ends_as(peer, "the next", IBV_WC_WR_FLUSH_ERR, NULL);
  barrier(peer);
  return fine;
}

static bool client_bad_key(struct peer* peer) {
  meet(peer);
  barrier(peer);
  return is_refused(peer, IBV_WR_RDMA_WRITE, peer->other.rkey ^ 0x55, 0);
}

static bool client_bad_address(struct peer* peer) {
  meet(peer);
  barrier(peer);
  return is_refused(peer, IBV_WR_RDMA_READ, peer->other.rkey, offset(peer, peer->options.messages) + 65);
}

static bool client_no_right(struct peer* peer) {
  meet(peer);
  barrier(peer);
  return is_refused(peer, IBV_WR_RDMA_WRITE, peer->other.read_only_rkey, 0);
}

static bool server_refuses(struct peer* peer) {
  fill(peer, 2);
  meet(peer);
  post_receive(peer, 0, 8);
  barrier(peer);
  bool fine = ends_as(peer, "the server's receive", IBV_WC_WR_FLUSH_ERR, NULL);
  barrier(peer);
  fine = fine && peer->options.messages > 0 && peer->memory[8] == pattern(8, 2);
  return fine;
}

// --- the other end or the network is gone ---

// Writes until a request fails; says how long the last one took to fail.
static bool client_until_gone(struct peer* peer) {
  meet(peer);
  barrier(peer);
  printf("writing\n");
  fflush(stdout);
  double last = now();
  for (;;) {
    post(peer, IBV_WR_RDMA_WRITE, 0, peer->other.rkey, 0);
    const double posted = now();
    const int status = next_status(peer, 120, NULL);
    if (status == IBV_WC_SUCCESS) {
      last = now();
      usleep(1000);
      continue;
    }
    printf("%s after %.0f ms (%.0f ms since the last success)\n",
           status < 0 ? "nothing" : ibv_wc_status_str((enum ibv_wc_status)status), (now() - posted) * 1e3,
           (now() - last) * 1e3);
    return status == IBV_WC_RETRY_EXC_ERR;
  }
}

static bool server_until_gone(struct peer* peer) {
  meet(peer);
  barrier(peer);
  sleep(60);
  return true;
}

static const struct scenario kScenarios[] = {
    {"send", client_send, server_receives},
    {"send_imm", client_send_imm, server_receives_imm},
    {"write", client_write, server_is_written},
    {"write_imm", client_write_imm, server_receives_imm},
    {"read", client_read, server_is_read},
    {"fetch_add", client_add, server_add},
    {"compare_swap", client_swap, server_swap},
    {"rnr", client_send, server_late},
    {"rnr_for_ever", client_unheard, server_idle},
    {"bad_key", client_bad_key, server_refuses},
    {"bad_address", client_bad_address, server_refuses},
    {"no_right", client_no_right, server_refuses},
    {"until_gone", client_until_gone, server_until_gone},
};

int run_scenario(struct peer* peer, const char* name) {
  for (size_t i = 0; i < sizeof kScenarios / sizeof *kScenarios; ++i) {
    if (strcmp(kScenarios[i].name, name) != 0) continue;
    const bool fine = (peer->options.server ? kScenarios[i].client : kScenarios[i].server)(peer);
    puts(fine ? "ok" : "FAIL");
    return fine ? 0 : 1;
  }
  printf("no scenario %s\n", name);
  return 2;
}
