/* librpma as its users know it: `rpma_use listen ADDRESS PORT` offers memory, `rpma_use connect ADDRESS PORT`
 * writes to it, flushes, writes eight bytes atomically, flushes, and reads all back; both look at what came.
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4096, COUNT_AT = 2048 };
static const char atomic_bytes[8] = {'V', 'e', 'r', 'b', 'e', 'n', 'a', '!'};

static void need(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
  exit(1);
}

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s is wrong\n", what);
  exit(1);
}

static char pattern(int i) { return (char)(i * 31 + 7); }

static void look_at(const char* memory) {
  for (int i = 0; i < COUNT_AT; ++i) expect(memory[i] == pattern(i), "what was written");
  expect(memcmp(memory + COUNT_AT, atomic_bytes, 8) == 0, "what was written atomically");
}

static void await(struct rpma_conn* conn, enum rpma_conn_event wanted) {
  enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
  need(rpma_conn_next_event(conn, &event), "next event");
  expect(event == wanted, rpma_utils_conn_event_2str(event));
}

static void listen_for_one(struct rpma_peer* peer, const char* address, const char* port, char* memory) {
  struct rpma_mr_local* mr;
  need(rpma_mr_reg(peer, memory, BYTES,
                   RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                   &mr),
       "register");
  char descriptor[128];
  size_t size = 0;
  need(rpma_mr_get_descriptor_size(mr, &size), "descriptor's size");
  expect(size <= sizeof descriptor, "the descriptor's size");
  need(rpma_mr_get_descriptor(mr, descriptor), "descriptor");
  struct rpma_conn_private_data data = {descriptor, (uint8_t)size};

  struct rpma_ep* ep;
  need(rpma_ep_listen(peer, address, port, &ep), "listen");
  printf("listening\n");
  fflush(stdout);
  struct rpma_conn_req* request;
  struct rpma_conn* conn;
  need(rpma_ep_next_conn_req(ep, NULL, &request), "connection request");
  need(rpma_conn_req_connect(&request, &data, &conn), "accept");
  await(conn, RPMA_CONN_ESTABLISHED);
  await(conn, RPMA_CONN_CLOSED);
  look_at(memory);
  rpma_conn_disconnect(conn);
  need(rpma_conn_delete(&conn), "delete");
  need(rpma_ep_shutdown(&ep), "shutdown");
  need(rpma_mr_dereg(&mr), "deregister");
  printf("received ok\n");
}

static void completion(struct rpma_conn* conn, const void* of) {
  struct rpma_cq* cq;
  struct ibv_wc wc;
  need(rpma_conn_get_cq(conn, &cq), "completion queue");
  need(rpma_cq_wait(cq), "wait");
  need(rpma_cq_get_wc(cq, 1, &wc, NULL), "completion");
  expect(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)of, "the completion");
}

static void connect_and_write(struct rpma_peer* peer, const char* address, const char* port, char* memory) {
  struct rpma_mr_local* mr;
  struct rpma_mr_remote* there;
  need(rpma_mr_reg(peer, memory, BYTES, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr), "register");
  struct rpma_conn_req* request;
  struct rpma_conn* conn;
  need(rpma_conn_req_new(peer, address, port, NULL, &request), "request");
  need(rpma_conn_req_connect(&request, NULL, &conn), "connect");
  await(conn, RPMA_CONN_ESTABLISHED);
  struct rpma_conn_private_data data;
  need(rpma_conn_get_private_data(conn, &data), "private data");
  need(rpma_mr_remote_from_descriptor(data.ptr, data.len, &there), "remote memory");

  for (int i = 0; i < COUNT_AT; ++i) memory[i] = pattern(i);
  need(rpma_write(conn, there, 0, mr, 0, COUNT_AT, RPMA_F_COMPLETION_ON_ERROR, NULL), "write");
  need(rpma_flush(conn, there, 0, COUNT_AT, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, there),
       "flush");
  completion(conn, there);
  need(rpma_atomic_write(conn, there, COUNT_AT, atomic_bytes, RPMA_F_COMPLETION_ALWAYS, memory),
       "atomic write");
  completion(conn, memory);
  need(rpma_flush(conn, there, COUNT_AT, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, mr),
       "flush");
  completion(conn, mr);
  memset(memory, 0, BYTES);
  need(rpma_read(conn, mr, 0, there, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, there), "read");
  completion(conn, there);
  look_at(memory);
  need(rpma_conn_disconnect(conn), "disconnect");
  await(conn, RPMA_CONN_CLOSED);
  need(rpma_mr_remote_delete(&there), "remote memory");
  need(rpma_conn_delete(&conn), "delete");
  need(rpma_mr_dereg(&mr), "deregister");
  printf("write, flush, atomic write, read ok\n");
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int listens = strcmp(argv[1], "listen") == 0;
  struct ibv_context* context;
  struct rpma_peer* peer;
  char* memory = aligned_alloc(4096, BYTES);
  memset(memory, 0, BYTES);
  need(rpma_utils_get_ibv_context(
           argv[2], listens ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE, &context),
       "device");
  need(rpma_peer_new(context, &peer), "peer");
  (listens ? listen_for_one : connect_and_write)(peer, argv[2], argv[3], memory);
  need(rpma_peer_delete(&peer), "peer");
  free(memory);
  return 0;
}
