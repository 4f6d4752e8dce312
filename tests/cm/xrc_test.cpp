// Endpoints whose queue pairs are XRC's: an initiator asks, a target answers, each request names a shared
// receive queue.
#include <endian.h>

#include <future>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

struct EndpointDeleter {
  void operator()(rdma_cm_id* id) const { rdma_destroy_ep(id); }
};
using Endpoint = std::unique_ptr<rdma_cm_id, EndpointDeleter>;

// `attributes` null: the program makes the queue pair itself.
Endpoint make_endpoint(ibv_qp_type type, ibv_qp_init_attr* attributes) {
  rdma_addrinfo hints{};
  const bool passive = type == IBV_QPT_XRC_RECV;
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  hints.ai_port_space = RDMA_PS_IB;
  hints.ai_qp_type = type;
  rdma_addrinfo* found = nullptr;
  must(rdma_getaddrinfo("127.0.0.1", "7472", &hints, &found), "rdma_getaddrinfo");
  rdma_cm_id* made = nullptr;
  const int failed = rdma_create_ep(&made, found, nullptr, attributes);
  rdma_freeaddrinfo(found);
  must(failed, "rdma_create_ep");
  return Endpoint(made);
}

Endpoint listen() {
  Endpoint made = make_endpoint(IBV_QPT_XRC_RECV, nullptr);
  must(rdma_listen(made.get(), 0), "rdma_listen");
  return made;
}

Endpoint make_initiator(ibv_qp_type type = IBV_QPT_XRC_SEND) {
  ibv_qp_init_attr attributes{};
  attributes.cap = {
      .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.sq_sig_all = 1;
  return make_endpoint(type, &attributes);
}

uint32_t number_of(ibv_srq* srq) {
  uint32_t number = 0;
  must(ibv_get_srq_num(srq, &number), "ibv_get_srq_num");
  return number;
}

// Takes a request, gives it a target, and answers it with a queue's number. Without `srq`: with a queue of
// its own.
Endpoint serve(rdma_cm_id* listener, ibv_srq* srq = nullptr) {
  rdma_cm_id* made = nullptr;
  must(rdma_get_request(listener, &made), "rdma_get_request");
  Endpoint id(made);
  EXPECT_EQ(id->qp_type, IBV_QPT_XRC_RECV);
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  must(rdma_create_qp(made, nullptr, &attributes), "rdma_create_qp");
  EXPECT_EQ(id->qp->qp_type, IBV_QPT_XRC_RECV);
  if (srq == nullptr) {
    ibv_srq_init_attr_ex wanted{};
    wanted.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    wanted.srq_type = IBV_SRQT_XRC;
    must(rdma_create_srq_ex(made, &wanted), "rdma_create_srq_ex");
    EXPECT_NE(id->recv_cq, nullptr);
    EXPECT_EQ(wanted.cq, id->recv_cq);
  }
  const uint32_t number = htobe32(number_of(srq != nullptr ? srq : id->srq));
  rdma_conn_param answer{};
  answer.private_data = &number;
  answer.private_data_len = sizeof number;
  answer.responder_resources = answer.initiator_depth = 4;
  must(rdma_accept(made, &answer), "rdma_accept");
  return id;
}

// Returns the number that the other end told.
uint32_t connect(rdma_cm_id* id) {
  must(rdma_connect(id, nullptr), "rdma_connect");
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(id->event->param.conn.srq, 1);
  uint32_t number = 0;
  std::memcpy(&number, id->event->param.conn.private_data, sizeof number);
  return be32toh(number);
}

struct Request {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t srq = 0;
  uint64_t address = 0;
  uint32_t rkey = 0;
};

ibv_wc_status send(rdma_cm_id* id, ibv_mr* from, const Request& request) {
  ibv_sge piece{reinterpret_cast<uint64_t>(from->addr), static_cast<uint32_t>(from->length), from->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = request.opcode;
  wr.wr.rdma = {.remote_addr = request.address, .rkey = request.rkey};
  wr.qp_type.xrc.remote_srqn = request.srq;
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
  ibv_wc done{};
  if (rdma_get_send_comp(id, &done) != 1) return IBV_WC_GENERAL_ERR;
  return done.status;
}

TEST(Xrc, TwoConnectionsShareAQueue) {
  const Endpoint listener = listen();
  Endpoint targets[2];
  Endpoint initiators[2];
  uint32_t number = 0;
  for (int i = 0; i < 2; ++i) {
    auto served = std::async(std::launch::async,
                             [&] { return serve(listener.get(), i == 0 ? nullptr : targets[0]->srq); });
    initiators[i] = make_initiator();
    EXPECT_EQ(initiators[i]->recv_cq, nullptr) << "it receives nothing";
    number = connect(initiators[i].get());
    targets[i] = served.get();
    ASSERT_EQ(number, number_of(targets[0]->srq));
    EXPECT_EQ(state_of(targets[i]->qp), IBV_QPS_RTS);
  }
  char received[64] = {};
  ibv_mr* into = rdma_reg_msgs(targets[0].get(), received, sizeof received);
  ASSERT_NE(into, nullptr);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    char sent[64] = {};
    std::snprintf(sent, sizeof sent, "from initiator %d", i);
    ibv_mr* from = rdma_reg_msgs(initiators[i].get(), sent, sizeof sent);
    ASSERT_NE(from, nullptr);
    ASSERT_EQ(rdma_post_recv(targets[0].get(), sent, received, sizeof received, into), 0);
    EXPECT_EQ(send(initiators[i].get(), from, {.srq = number}), IBV_WC_SUCCESS);
    ibv_wc got{};
    ASSERT_EQ(rdma_get_recv_comp(targets[0].get(), &got), 1);
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.qp_num, targets[i]->qp->qp_num);
    EXPECT_STREQ(received, sent);
    rdma_dereg_mr(from);
  }
  EXPECT_EQ(rdma_dereg_mr(into), 0);
  for (auto& one : initiators) EXPECT_EQ(rdma_disconnect(one.get()), 0);
}

TEST(Xrc, ReachesMemory) {
  const Endpoint listener = listen();
  auto served = std::async(std::launch::async, [&] { return serve(listener.get()); });
  const Endpoint initiator = make_initiator();
  const uint32_t number = connect(initiator.get());
  const Endpoint target = served.get();
  char there[64] = {};
  char here[64] = "written";
  ibv_mr* remote = ibv_reg_mr(target->pd, there, sizeof there,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  ibv_mr* local = ibv_reg_mr(initiator->pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_TRUE(remote != nullptr && local != nullptr);
  Request request{.opcode = IBV_WR_RDMA_WRITE,
                  .srq = number,
                  .address = reinterpret_cast<uint64_t>(there),
                  .rkey = remote->rkey};
  EXPECT_EQ(send(initiator.get(), local, request), IBV_WC_SUCCESS);
  EXPECT_STREQ(there, "written");
  std::strcpy(there, "to be read");
  request.opcode = IBV_WR_RDMA_READ;
  EXPECT_EQ(send(initiator.get(), local, request), IBV_WC_SUCCESS);
  EXPECT_STREQ(here, "to be read");
  EXPECT_EQ(rdma_disconnect(initiator.get()), 0);
  EXPECT_EQ(rdma_dereg_mr(local), 0);
  EXPECT_EQ(rdma_dereg_mr(remote), 0);
}

// What each end listens or asks for has to fit; the listener hears nothing of the others.
TEST(Xrc, OtherTypesAreRejected) {
  const Endpoint listener = listen();
  auto served = std::async(std::launch::async, [&] { return serve(listener.get()); });
  {
    const Endpoint reliable = make_initiator(IBV_QPT_RC);
    EXPECT_EQ(rdma_connect(reliable.get(), nullptr), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
  }
  const Endpoint initiator = make_initiator();
  EXPECT_NE(connect(initiator.get()), 0u);
  const Endpoint target = served.get();
  EXPECT_EQ(rdma_disconnect(initiator.get()), 0);
}

TEST(Xrc, QueuesOfAnIdAreRefused) {
  const Endpoint initiator = make_initiator();
  ibv_srq_init_attr_ex wanted{};
  wanted.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(rdma_create_srq_ex(initiator.get(), &wanted), -1) << "which type?";
  EXPECT_EQ(errno, EINVAL);
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  wanted.srq_type = IBV_SRQT_TM;  // nobody has those
  EXPECT_EQ(rdma_create_srq_ex(initiator.get(), &wanted), -1);
  EXPECT_EQ(initiator->srq, nullptr);
}

}  // namespace
}  // namespace verbena::cm_test
