// One end of a test between two implementations of verbs: peer [options] SCENARIO [SERVER]. Both ends run the
// same scenario; the last line of each says ok or what went wrong.
#include "peer.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int run_scenario(struct peer* peer, const char* name);

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// --- the ends find each other ---

static int wait_for_client(int port) {
  const int listener = socket(AF_INET6, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  struct sockaddr_in6 address = {
      .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
  if (bind(listener, (struct sockaddr*)&address, sizeof address) || listen(listener, 1)) give_up("listen");
  const int tcp = accept(listener, NULL, NULL);
  if (tcp < 0) give_up("accept");
  close(listener);
  return tcp;
}

static int find_server(const char* name, int port) {
  struct addrinfo* found = NULL;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  if (getaddrinfo(name, service, &hints, &found)) give_up("getaddrinfo");
  // The server's machine may be an emulated one, where starting takes its time.
  for (const double began = now(); now() - began < 30; usleep(100000)) {
    const int tcp = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(tcp, found->ai_addr, found->ai_addrlen) == 0) return tcp;
    close(tcp);
  }
  give_up("connect");
  return -1;
}

static void exchange(const struct peer* peer, const void* out, void* in, size_t bytes) {
  if (write(peer->tcp, out, bytes) != (ssize_t)bytes) give_up("the other end is gone");
  for (size_t got = 0; got < bytes;) {
    const ssize_t more = read(peer->tcp, (char*)in + got, bytes - got);
    if (more <= 0) give_up("the other end is gone");
    got += (size_t)more;
  }
}

void barrier(struct peer* peer) {
  char here = 'b', there;
  exchange(peer, &here, &there, 1);
}

// --- verbs ---

static struct ibv_context* open_device(const char* wanted) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (!wanted || strcmp(ibv_get_device_name(list[i]), wanted) == 0) return ibv_open_device(list[i]);
  return NULL;
}

void open_peer(struct peer* peer) {
  const struct options* options = &peer->options;
  const size_t bytes = options->bytes * (size_t)options->messages + 64;
  if (!(peer->context = open_device(options->device))) give_up("no such device");
  if (!(peer->pd = ibv_alloc_pd(peer->context))) give_up("ibv_alloc_pd");
  if (!(peer->cq = ibv_create_cq(peer->context, 2 * options->messages + 16, NULL, NULL, 0)))
    give_up("ibv_create_cq");
  if (posix_memalign((void**)&peer->memory, 4096, bytes)) give_up("memory");
  memset(peer->memory, 0, bytes);
  const int all =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  peer->mr = ibv_reg_mr(peer->pd, peer->memory, bytes, all);
  peer->read_only = ibv_reg_mr(peer->pd, peer->memory, bytes, IBV_ACCESS_REMOTE_READ);
  if (!peer->mr || !peer->read_only) give_up("ibv_reg_mr");
  struct ibv_qp_init_attr init = {.send_cq = peer->cq,
                                  .recv_cq = peer->cq,
                                  .qp_type = strcmp(options->service, "uc") == 0 ? IBV_QPT_UC : IBV_QPT_RC,
                                  .cap = {.max_send_wr = (uint32_t)options->messages + 1,
                                          .max_recv_wr = (uint32_t)options->messages + 1,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1},
                                  .sq_sig_all = 1};
  if (!(peer->qp = ibv_create_qp(peer->pd, &init))) give_up("ibv_create_qp");
  peer->tcp = options->server ? find_server(options->server, options->port) : wait_for_client(options->port);
}

static enum ibv_mtu mtu_of(int bytes) {
  enum ibv_mtu mtu = IBV_MTU_256;
  for (int size = 256; size < bytes; size *= 2) ++mtu;
  return mtu;
}

static void to_ready(struct peer* peer) {
  const struct options* options = &peer->options;
  const bool rc = peer->qp->qp_type == IBV_QPT_RC;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
                                                (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0)};
  if (ibv_modify_qp(peer->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    give_up("to INIT");
  attr =
      (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                           .path_mtu = mtu_of(options->mtu),
                           .dest_qp_num = peer->other.qpn,
                           .rq_psn = peer->other.psn,
                           .max_dest_rd_atomic = 4,
                           .min_rnr_timer = 12,
                           .ah_attr = {.is_global = 1,
                                       .port_num = 1,
                                       .grh = {.sgid_index = (uint8_t)options->gid_index, .hop_limit = 64}}};
  memcpy(&attr.ah_attr.grh.dgid, peer->other.gid, 16);
  const int both = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (ibv_modify_qp(peer->qp, &attr, rc ? both | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : both))
    give_up("to RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .sq_psn = peer->own.psn,
                              .max_rd_atomic = 4,
                              .timeout = (uint8_t)options->timeout,
                              .retry_cnt = (uint8_t)options->retries,
                              .rnr_retry = (uint8_t)options->rnr_retry};
  const int send = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (ibv_modify_qp(
          peer->qp, &attr,
          rc ? send | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : send))
    give_up("to RTS");
}

void meet(struct peer* peer) {
  union ibv_gid gid;
  if (ibv_query_gid(peer->context, 1, peer->options.gid_index, &gid)) give_up("ibv_query_gid");
  peer->own = (struct card){.qpn = peer->qp->qp_num,
                            .psn = (uint32_t)(now() * 1e6) & 0xffffff,
                            .rkey = peer->mr->rkey,
                            .read_only_rkey = peer->read_only->rkey,
                            .address = (uintptr_t)peer->memory};
  memcpy(peer->own.gid, &gid, 16);
  exchange(peer, &peer->own, &peer->other, sizeof peer->own);
  to_ready(peer);
}

struct ibv_sge piece(const struct peer* peer, int message, size_t bytes) {
  return (struct ibv_sge){.addr = (uintptr_t)(peer->memory + peer->options.bytes * (size_t)message),
                          .length = (uint32_t)bytes,
                          .lkey = peer->mr->lkey};
}

void post_receive(struct peer* peer, int message, size_t bytes) {
  struct ibv_sge sge = piece(peer, message, bytes);
  struct ibv_recv_wr request = {.wr_id = (uint64_t)message, .sg_list = &sge, .num_sge = 1}, *bad;
  if (ibv_post_recv(peer->qp, &request, &bad)) give_up("ibv_post_recv");
}

void post(struct peer* peer, enum ibv_wr_opcode opcode, int message, uint32_t rkey, uint64_t offset) {
  const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  struct ibv_sge sge = piece(peer, message, atomic ? 8 : peer->options.bytes);
  struct ibv_send_wr request = {.wr_id = (uint64_t)message, .sg_list = &sge, .num_sge = 1, .opcode = opcode},
                     *bad;
  request.imm_data = htonl(0x1000u + (uint32_t)message);
  if (atomic) {
    request.wr.atomic.remote_addr = peer->other.address + offset;
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 3 : (uint64_t)message;
    request.wr.atomic.swap = (uint64_t)message + 1;
  } else {
    request.wr.rdma.remote_addr = peer->other.address + offset;
    request.wr.rdma.rkey = rkey;
  }
  if (ibv_post_send(peer->qp, &request, &bad)) give_up("ibv_post_send");
}

int next_status(struct peer* peer, double seconds, struct ibv_wc* found) {
  struct ibv_wc wc;
  for (const double began = now(); now() - began < seconds;) {
    if (ibv_poll_cq(peer->cq, 1, &wc) == 1) {
      if (found) *found = wc;
      return (int)wc.status;
    }
  }
  return -1;
}

int main(int argc, char** argv) {
  struct peer peer = {.options = {.service = "rc",
                                  .port = 18600,
                                  .mtu = 1024,
                                  .timeout = 14,
                                  .retries = 7,
                                  .rnr_retry = 7,
                                  .messages = 4,
                                  .bytes = 4096}};
  struct options* options = &peer.options;
  for (int option; (option = getopt(argc, argv, "d:g:q:p:m:t:r:R:n:s:")) != -1;) {
    switch (option) {
      case 'd':
        options->device = optarg;
        break;
      case 'g':
        options->gid_index = atoi(optarg);
        break;
      case 'q':
        options->service = optarg;
        break;
      case 'p':
        options->port = atoi(optarg);
        break;
      case 'm':
        options->mtu = atoi(optarg);
        break;
      case 't':
        options->timeout = atoi(optarg);
        break;
      case 'r':
        options->retries = atoi(optarg);
        break;
      case 'R':
        options->rnr_retry = atoi(optarg);
        break;
      case 'n':
        options->messages = atoi(optarg);
        break;
      case 's':
        options->bytes = (size_t)atoll(optarg);
        break;
      default:
        return 2;
    }
  }
  if (optind == argc) return 2;
  const char* scenario = argv[optind];
  options->server = argv[optind + 1];
  open_peer(&peer);
  return run_scenario(&peer, scenario);
}
