// Event channels: waiting, acknowledging, moving ids between them.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

TEST(Events, ANonBlockingChannelAnswersEagain) {
  const auto channel = make_channel();
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Events, DestroyingAnIdWaitsForTheAcknowledgement) {
  const auto channel = make_channel();
  rdma_cm_id* id = make_id(channel.get()).release();
  Address here("127.0.0.1", 7471);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, here.get(), 2000), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(rdma_destroy_id(id), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(kMoment);
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  destroyer.join();
}

TEST(Events, ThoseOfADestroyedIdAreGone) {
  const auto channel = make_channel();
  const auto other = make_id(channel.get());
  Address here("127.0.0.1", 7471);
  {
    const auto id = make_id(channel.get());
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, here.get(), 2000), 0);
    ASSERT_EQ(rdma_resolve_addr(other.get(), nullptr, here.get(), 2000), 0);
  }
  EXPECT_EQ(next(channel.get()).id, other.get());
  EXPECT_FALSE(next(channel.get(), kMoment).came);
}

TEST(Events, TheyGoAlongWithAnIdThatMigrates) {
  const auto before = make_channel();
  const auto after = make_channel();
  const auto id = make_id(before.get());
  const auto other = make_id(before.get());
  Address here("127.0.0.1", 7471);
  ASSERT_EQ(rdma_resolve_addr(other.get(), nullptr, here.get(), 2000), 0);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, here.get(), 2000), 0);
  ASSERT_EQ(rdma_migrate_id(id.get(), after.get()), 0);
  EXPECT_EQ(id->channel, after.get());
  const Event moved = next(after.get());
  EXPECT_EQ(moved.id, id.get());
  EXPECT_EQ(moved.type, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(next(before.get()).id, other.get());
  EXPECT_FALSE(next(before.get(), kMoment).came);
  // To a channel of its own: from then on its calls wait.
  ASSERT_EQ(rdma_migrate_id(id.get(), nullptr), 0);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  // And back.
  ASSERT_EQ(rdma_migrate_id(id.get(), before.get()), 0);
  EXPECT_EQ(id->event, nullptr);
}

// Requests that wait at a listener come out where the listener went.
TEST(Events, RequestsGoAlongWithTheirListener) {
  Pair pair(Pair::Unanswered{});
  const auto asking = make_channel();
  const auto client = make_id(asking.get());
  Address there("127.0.0.1", ntohs(rdma_get_src_port(pair.listener.get())));
  must(rdma_resolve_addr(client.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
  ASSERT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
  must(rdma_resolve_route(client.get(), 2000), "rdma_resolve_route");
  ASSERT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
  give_queue_pair(client.get());
  must(rdma_connect(client.get(), nullptr), "rdma_connect");
  ASSERT_TRUE(readable(pair.passive_channel->fd, kLong));
  const auto elsewhere = make_channel();
  ASSERT_EQ(rdma_migrate_id(pair.listener.get(), elsewhere.get()), 0);
  const Event request = next(elsewhere.get());
  ASSERT_TRUE(request.came);
  const Id served(request.id);
  EXPECT_EQ(served->channel, elsewhere.get());
  give_queue_pair(served.get());
  ASSERT_EQ(rdma_accept(served.get(), nullptr), 0);
  EXPECT_TRUE(next_is(asking.get(), RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_TRUE(next_is(elsewhere.get(), RDMA_CM_EVENT_ESTABLISHED));
}

// More than a socket's buffer holds, none of them read in between.
TEST(Events, ThousandsWaitInTheirOrder) {
  constexpr int kIds = 2000;
  const auto channel = make_channel();
  std::vector<Id> ids;
  Address here("127.0.0.1", 7471);
  for (int i = 0; i < kIds; ++i) {
    ids.push_back(make_id(channel.get()));
    ASSERT_EQ(rdma_resolve_addr(ids.back().get(), nullptr, here.get(), 2000), 0);
  }
  for (int i = 0; i < kIds; ++i) ASSERT_EQ(next(channel.get()).id, ids[i].get()) << i;
  EXPECT_FALSE(next(channel.get(), kMoment).came);
}

TEST(Events, ASignalEndsTheWait) {
  const auto channel = make_channel();
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &handler, &before), 0);
  std::atomic<int> error = 0;
  std::thread waiter([&] {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel.get(), &event) != 0) error = errno;
  });
  while (error == 0) {
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(Wait(10));
  }
  waiter.join();
  EXPECT_EQ(error, EINTR);
  ::sigaction(SIGUSR1, &before, nullptr);
}

// A sanitizer's own frames aren't made for being cancelled.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A plain thread: std::thread's own frames aren't made for being cancelled.
pthread_t start_waiter(rdma_event_channel* channel) {
  pthread_t thread{};
  const auto wait = [](void* on) -> void* {
    rdma_cm_event* event = nullptr;
    (void)rdma_get_cm_event(static_cast<rdma_event_channel*>(on), &event);
    return nullptr;
  };
  must(::pthread_create(&thread, nullptr, wait, channel), "pthread_create");
  std::this_thread::sleep_for(kMoment);  // until it waits
  return thread;
}

// True: it was still waiting.
bool cancel(pthread_t waiter) {
  must(::pthread_cancel(waiter), "pthread_cancel");
  void* result = nullptr;
  must(::pthread_join(waiter, &result), "pthread_join");
  return result == PTHREAD_CANCELED;
}

TEST(Events, AWaitingThreadCanBeCancelled) {
  const auto channel = make_channel();
  EXPECT_TRUE(cancel(start_waiter(channel.get())));
  // The channel is as good as before.
  const auto id = make_id(channel.get());
  Address here("127.0.0.1", 7471);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, here.get(), 2000), 0);
  EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
}

// As rping does it: the channel ends under a thread that waits on it, which then goes on waiting.
TEST(Events, AChannelDestroyedUnderAWaitingThread) {
  auto* channel = make_channel().release();
  const pthread_t waiter = start_waiter(channel);
  rdma_destroy_event_channel(channel);
  std::this_thread::sleep_for(kMoment);
  EXPECT_TRUE(cancel(waiter));
}
#endif

}  // namespace
}  // namespace verbena::cm_test
