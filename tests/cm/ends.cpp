#include "ends.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <stdexcept>

namespace verbena::cm_test {

void must(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

Address::Address(const char* text, uint16_t port) {
  sockaddr_in in{};
  sockaddr_in6 in6{};
  if (::inet_pton(AF_INET, text, &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&storage, &in, sizeof in);
  } else if (::inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&storage, &in6, sizeof in6);
  } else {
    throw std::runtime_error(std::string("no address: ") + text);
  }
}

Channel make_channel() {
  Channel made(rdma_create_event_channel());
  must(made ? 0 : -1, "rdma_create_event_channel");
  return made;
}

Id make_id(rdma_event_channel* channel, rdma_port_space space) {
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, space), "rdma_create_id");
  return Id(id);
}

bool readable(int fd, Wait wait) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(wait.count())) == 1;
}

Event next(rdma_event_channel* channel, Wait wait) {
  if (!readable(channel->fd, wait)) return {};
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  Event made{.came = true,
             .type = event->event,
             .status = event->status,
             .id = event->id,
             .listener = event->listen_id,
             .conn = event->param.conn,
             .data = {}};
  if (event->param.conn.private_data != nullptr)
    made.data.assign(static_cast<const char*>(event->param.conn.private_data),
                     ::strnlen(static_cast<const char*>(event->param.conn.private_data),
                               event->param.conn.private_data_len));
  must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return made;
}

testing::AssertionResult next_is(rdma_event_channel* channel, rdma_cm_event_type type, int status) {
  const Event event = next(channel);
  if (!event.came)
    return testing::AssertionFailure() << "no event came, where " << rdma_event_str(type) << " should";
  if (event.type == type && event.status == status) return testing::AssertionSuccess();
  return testing::AssertionFailure() << rdma_event_str(event.type) << " came with status " << event.status
                                     << ", where " << rdma_event_str(type) << " with " << status << " should";
}

ibv_qp_init_attr queue_pair_attributes() {
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return attributes;
}

void give_queue_pair(rdma_cm_id* id) {
  auto attributes = queue_pair_attributes();
  must(rdma_create_qp(id, nullptr, &attributes), "rdma_create_qp");
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  must(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), "ibv_query_qp");
  return attributes.qp_state;
}

rdma_conn_param parameters() {
  static const std::string none;
  return parameters(none);
}

rdma_conn_param parameters(const std::string& private_data) {
  rdma_conn_param made{};
  made.private_data = private_data.data();
  made.private_data_len = static_cast<uint8_t>(private_data.size());
  made.responder_resources = 4;
  made.initiator_depth = 2;
  made.retry_count = 7;
  made.rnr_retry_count = 7;
  return made;
}

void exchange(rdma_cm_id* a, rdma_cm_id* b) {
  const auto one_way = [](rdma_cm_id* from, rdma_cm_id* to) {
    char sent[16] = "over RDMA CM";
    char received[16]{};
    ibv_mr* source = rdma_reg_msgs(from, sent, sizeof sent);
    ibv_mr* sink = rdma_reg_msgs(to, received, sizeof received);
    must(source != nullptr && sink != nullptr ? 0 : -1, "rdma_reg_msgs");
    must(rdma_post_recv(to, nullptr, received, sizeof received, sink), "rdma_post_recv");
    must(rdma_post_send(from, nullptr, sent, sizeof sent, source, 0), "rdma_post_send");
    ibv_wc completion{};
    EXPECT_EQ(rdma_get_send_comp(from, &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(rdma_get_recv_comp(to, &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_STREQ(received, sent);
    must(rdma_dereg_mr(source), "rdma_dereg_mr");
    must(rdma_dereg_mr(sink), "rdma_dereg_mr");
  };
  one_way(a, b);
  one_way(b, a);
}

Pair::Pair(Unanswered, const char* address, const std::string& private_data) {
  Address here(address);
  listener = make_id(passive_channel.get());
  must(rdma_bind_addr(listener.get(), here.get()), "rdma_bind_addr");
  must(rdma_listen(listener.get(), 4), "rdma_listen");
  Address there(address, ntohs(rdma_get_src_port(listener.get())));
  active = make_id(active_channel.get());
  must(rdma_resolve_addr(active.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
  EXPECT_TRUE(next_is(active_channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
  must(rdma_resolve_route(active.get(), 2000), "rdma_resolve_route");
  EXPECT_TRUE(next_is(active_channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
  give_queue_pair(active.get());
  auto wanted = parameters(private_data);
  must(rdma_connect(active.get(), &wanted), "rdma_connect");
  request = next(passive_channel.get());
  if (!request.came || request.type != RDMA_CM_EVENT_CONNECT_REQUEST)
    throw std::runtime_error("no connection request came");
  passive.reset(request.id);
}

Pair::Pair(const char* address) : Pair(Unanswered{}, address) {
  give_queue_pair(passive.get());
  auto wanted = parameters();
  must(rdma_accept(passive.get(), &wanted), "rdma_accept");
  EXPECT_TRUE(next_is(active_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_TRUE(next_is(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED));
}

}  // namespace verbena::cm_test
