// The nine ways to take RDMA CM's events and completions: without a channel, blocking, non-blocking.
#include <fcntl.h>

#include <optional>
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

enum class Kind : uint8_t { kNone, kBlocking, kNonBlocking };
using Kinds = std::tuple<Kind, Kind>;  // of events, of completions

void make_nonblocking(int fd) { must(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), "fcntl"); }

// One end: the same steps in whichever way.
class End {
 public:
  explicit End(Kinds kinds) : events_(std::get<0>(kinds)), completions_(std::get<1>(kinds)) {
    if (events_ != Kind::kNone) channel_ = make_channel();
    if (events_ == Kind::kNonBlocking) make_nonblocking(channel_->fd);
  }
  ~End() {
    if (id_) {
      rdma_destroy_qp(id_.get());
      id_.reset();
    }
    if (queue_ != nullptr) ibv_destroy_cq(queue_);
    if (completion_channel_ != nullptr) ibv_destroy_comp_channel(completion_channel_);
  }

  void serve(rdma_cm_id* listener) {
    if (events_ == Kind::kNone) {
      rdma_cm_id* child = nullptr;
      must(rdma_get_request(listener, &child), "rdma_get_request");
      id_.reset(child);
    } else {
      const Event request = await(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
      id_.reset(request.id);
      must(rdma_migrate_id(id_.get(), channel_.get()), "rdma_migrate_id");
    }
    prepare();
    must(rdma_accept(id_.get(), nullptr), "rdma_accept");
    settle(RDMA_CM_EVENT_ESTABLISHED);
  }
  void connect(uint16_t port) {
    id_ = make_id(channel_.get());
    Address there("127.0.0.1", port);
    must(rdma_resolve_addr(id_.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
    settle(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(id_.get(), 2000), "rdma_resolve_route");
    settle(RDMA_CM_EVENT_ROUTE_RESOLVED);
    prepare();
    must(rdma_connect(id_.get(), nullptr), "rdma_connect");
    settle(RDMA_CM_EVENT_ESTABLISHED);
  }
  void send(char value) {
    sent_ = value;
    must(rdma_post_send(id_.get(), this, &sent_, 1, send_region_, 0), "rdma_post_send");
    complete();
  }
  // The receive was posted before; the next is posted right away.
  char receive() {
    complete();
    const char value = received_;
    post();
    return value;
  }
  void leave() {
    must(rdma_disconnect(id_.get()), "rdma_disconnect");
    settle(RDMA_CM_EVENT_DISCONNECTED);
    drop_regions();
  }
  void see_off() {
    await(id_->channel, RDMA_CM_EVENT_DISCONNECTED);
    must(rdma_disconnect(id_.get()), "rdma_disconnect");
    drop_regions();
  }
  [[nodiscard]] rdma_event_channel* channel() { return channel_.get(); }

 private:
  // Synchronous calls have waited already.
  void settle(rdma_cm_event_type type) {
    if (events_ != Kind::kNone) await(id_->channel, type);
  }
  Event await(rdma_event_channel* channel, rdma_cm_event_type type) {
    if (events_ == Kind::kNonBlocking && !readable(channel->fd, Wait(0))) {
      rdma_cm_event* none = nullptr;
      // One may come just now.
      if (rdma_get_cm_event(channel, &none) == 0) return check(none, type);
      EXPECT_EQ(errno, EAGAIN);
      EXPECT_TRUE(readable(channel->fd, kLong));
    }
    rdma_cm_event* event = nullptr;
    must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    return check(event, type);
  }
  static Event check(rdma_cm_event* event, rdma_cm_event_type type) {
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    EXPECT_EQ(event->status, 0);
    const Event made{.came = true, .type = event->event, .id = event->id};
    must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    return made;
  }
  void prepare() {
    if (completions_ != Kind::kNone) completion_channel_ = ibv_create_comp_channel(id_->verbs);
    if (completions_ == Kind::kNonBlocking) make_nonblocking(completion_channel_->fd);
    queue_ = ibv_create_cq(id_->verbs, 16, this, completion_channel_, 0);
    must(queue_ != nullptr ? 0 : -1, "ibv_create_cq");
    if (completion_channel_ != nullptr) must(ibv_req_notify_cq(queue_, 0), "ibv_req_notify_cq");
    auto attributes = queue_pair_attributes();
    attributes.send_cq = attributes.recv_cq = queue_;
    must(rdma_create_qp(id_.get(), nullptr, &attributes), "rdma_create_qp");
    send_region_ = rdma_reg_msgs(id_.get(), &sent_, 1);
    receive_region_ = rdma_reg_msgs(id_.get(), &received_, 1);
    post();
  }
  void post() { must(rdma_post_recv(id_.get(), this, &received_, 1, receive_region_), "rdma_post_recv"); }
  // A ping-pong: one completion at a time.
  void complete() {
    ibv_wc completion{};
    while (ibv_poll_cq(queue_, 1, &completion) == 0)
      if (completion_channel_ != nullptr) wait_for_completion_event();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
  void wait_for_completion_event() {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (completions_ == Kind::kNonBlocking && ibv_get_cq_event(completion_channel_, &queue, &context) != 0) {
      EXPECT_EQ(errno, EAGAIN);
      EXPECT_TRUE(readable(completion_channel_->fd, kLong));
    }
    if (queue == nullptr) must(ibv_get_cq_event(completion_channel_, &queue, &context), "ibv_get_cq_event");
    EXPECT_EQ(context, this);
    ibv_ack_cq_events(queue, 1);
    must(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
  }
  void drop_regions() {
    rdma_dereg_mr(send_region_);
    rdma_dereg_mr(receive_region_);
  }

  Kind events_;
  Kind completions_;
  Channel channel_;
  Id id_;
  ibv_comp_channel* completion_channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_mr* send_region_ = nullptr;
  ibv_mr* receive_region_ = nullptr;
  char sent_ = 0;
  char received_ = 0;
};

class ChannelKinds : public testing::TestWithParam<Kinds> {};

TEST_P(ChannelKinds, PingPong) {
  constexpr int kRounds = 20;
  End server(GetParam());
  const auto listening = server.channel() != nullptr ? make_channel() : nullptr;
  if (std::get<0>(GetParam()) == Kind::kNonBlocking) make_nonblocking(listening->fd);
  const auto listener = make_id(listening.get());
  Address here("127.0.0.1");
  ASSERT_EQ(rdma_bind_addr(listener.get(), here.get()), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 1), 0);
  std::thread serving([&] {
    server.serve(listener.get());
    for (int i = 0; i < kRounds; ++i) server.send(server.receive());
    server.see_off();
  });
  {
    End client(GetParam());
    client.connect(ntohs(rdma_get_src_port(listener.get())));
    for (int i = 0; i < kRounds; ++i) {
      client.send(static_cast<char>('a' + i));
      EXPECT_EQ(client.receive(), 'a' + i);
    }
    client.leave();
  }
  serving.join();
}

std::string name_of(Kind kind) {
  return kind == Kind::kNone ? "No" : kind == Kind::kBlocking ? "Blocking" : "NonBlocking";
}
constexpr auto kKinds = {Kind::kNone, Kind::kBlocking, Kind::kNonBlocking};
INSTANTIATE_TEST_SUITE_P(Cm, ChannelKinds,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kKinds)),
                         [](const auto& row) {
                           return name_of(std::get<0>(row.param)) + "Events" +
                                  name_of(std::get<1>(row.param)) + "Completions";
                         });

}  // namespace
}  // namespace verbena::cm_test
