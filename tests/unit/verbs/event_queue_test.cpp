#include "verbs/event_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace verbena::verbs {
namespace {

std::unique_ptr<EventQueue> make_queue() {
  auto queue = EventQueue::create();
  EXPECT_TRUE(queue);
  return std::move(*queue);
}

void make_nonblocking(int fd) { ASSERT_EQ(0, ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK)); }

bool readable(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

TEST(EventQueue, GivesEventsInOrderAndIsReadableUntilTheLast) {
  const auto queue = make_queue();
  EXPECT_FALSE(readable(queue->fd()));
  queue->push({.type = 9, .element = 1});
  queue->push({.type = 18, .element = 2});

  EXPECT_TRUE(readable(queue->fd()));
  EXPECT_EQ(9, queue->take()->type);
  EXPECT_TRUE(readable(queue->fd()));
  EXPECT_EQ(2u, queue->take()->element);
  EXPECT_FALSE(readable(queue->fd()));
}

TEST(EventQueue, IsCloseOnExec) { EXPECT_TRUE(::fcntl(make_queue()->fd(), F_GETFD) & FD_CLOEXEC); }

TEST(EventQueue, SaysEagainWhenNonblockingAndEmpty) {
  const auto queue = make_queue();
  make_nonblocking(queue->fd());
  const auto event = queue->take();
  ASSERT_FALSE(event);
  EXPECT_EQ(EAGAIN, event.error().code);
}

TEST(EventQueue, WakesAWaitingReader) {
  const auto queue = make_queue();
  int type = 0;
  std::thread reader([&] { type = queue->take()->type; });
  queue->push({.type = 10, .element = 1});
  reader.join();
  EXPECT_EQ(10, type);
}

TEST(EventQueue, KeepsTheFirst1024OfAProgramThatNeverReads) {
  const auto queue = make_queue();
  make_nonblocking(queue->fd());
  for (uint64_t i = 0; i < 2000; ++i) queue->push({.type = 0, .element = i});
  for (uint64_t i = 0; i < 1024; ++i) EXPECT_EQ(i, queue->take()->element);
  EXPECT_EQ(EAGAIN, queue->take().error().code);
}

TEST(EventQueue, LeavesAloneAFileThatTookItsDescriptor) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC | O_NONBLOCK));
  int number = -1;
  {
    const auto queue = make_queue();
    number = queue->fd();
    ASSERT_EQ(number, ::dup2(ends[1], number));  // closes ours, as a daemon's clean-up and a later open do
    queue->push({.type = 1, .element = 1});
    EXPECT_EQ(-1, queue->fd());
    EXPECT_EQ(EBADF, queue->take().error().code);
  }
  EXPECT_FALSE(readable(ends[0]));         // nothing was written into the program's pipe
  EXPECT_GE(::fcntl(number, F_GETFD), 0);  // nor was it closed
  for (const int fd : {ends[0], ends[1], number}) ::close(fd);
}

}  // namespace
}  // namespace verbena::verbs
