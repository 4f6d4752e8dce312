#include "agent/event_loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <memory>
#include <vector>

namespace verbena::agent {
namespace {

using base::milliseconds;

base::UniqueFd make_event(unsigned value) {
  return base::UniqueFd(::eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

void take(const base::UniqueFd& event) {
  eventfd_t value = 0;
  ::eventfd_read(event.get(), &value);
}

class EventLoopTest : public testing::Test {
 protected:
  void run_for(milliseconds wait) { loop_.run_once(base::now() + wait); }
  base::Result<EventLoop> made_ = EventLoop::create();
  EventLoop& loop_ = *made_;
};

TEST_F(EventLoopTest, CallsTheHandlerEachRoundWhileItsDescriptorIsReadable) {
  const auto event = make_event(0);
  int calls = 0;
  ASSERT_TRUE(loop_.watch(event.get(), [&] { ++calls; }));
  run_for(milliseconds(0));
  EXPECT_EQ(0, calls);
  ::eventfd_write(event.get(), 1);
  run_for(milliseconds(0));
  run_for(milliseconds(0));
  EXPECT_EQ(2, calls);
  take(event);
  run_for(milliseconds(0));
  EXPECT_EQ(2, calls);
}

TEST_F(EventLoopTest, WaitsUntilItsDeadlineAndNoLonger) {
  const auto deadline = base::now() + milliseconds(20);
  loop_.run_once(deadline);
  EXPECT_GE(base::now(), deadline);
  const auto before = base::now();
  loop_.run_once(before + base::seconds(-5));
  EXPECT_LT(base::now() - before, base::seconds(1));
}

TEST_F(EventLoopTest, ReturnsAtOnceWhenSomethingIsReady) {
  const auto event = make_event(1);
  ASSERT_TRUE(loop_.watch(event.get(), [&] { take(event); }));
  const auto before = base::now();
  run_for(milliseconds(60'000));
  EXPECT_LT(base::now() - before, base::seconds(30));
}

TEST_F(EventLoopTest, HandlesAllThatIsReadyInOneRound) {
  std::vector<base::UniqueFd> events;
  int calls = 0;
  for (int i = 0; i < 50; ++i) {
    events.push_back(make_event(1));
    ASSERT_TRUE(loop_.watch(events.back().get(), [&] { ++calls; }));
  }
  run_for(milliseconds(0));
  EXPECT_EQ(50, calls);
}

TEST_F(EventLoopTest, AHandlerMayUnwatchItself) {
  const auto event = make_event(1);
  int calls = 0;
  auto held = std::make_shared<int>(7);  // what the handler captured stays valid until it returns
  ASSERT_TRUE(loop_.watch(event.get(), [&, held = std::move(held)] {
    loop_.unwatch(event.get());
    calls += *held;
  }));
  run_for(milliseconds(0));
  run_for(milliseconds(0));
  EXPECT_EQ(7, calls);
}

TEST_F(EventLoopTest, AHandlerMayUnwatchAnotherThatIsReadyToo) {
  base::UniqueFd events[] = {make_event(1), make_event(1)};
  int calls = 0;
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(loop_.watch(events[i].get(), [&, i] {
      ++calls;
      loop_.unwatch(events[1 - i].get());
      events[1 - i].reset();
    }));
  run_for(milliseconds(0));
  EXPECT_EQ(1, calls);
}

TEST_F(EventLoopTest, AHandlerMayWatchAnother) {
  const auto first = make_event(1);
  const auto second = make_event(1);
  int calls = 0;
  ASSERT_TRUE(loop_.watch(first.get(), [&] {
    loop_.unwatch(first.get());
    EXPECT_TRUE(loop_.watch(second.get(), [&] { ++calls; }));
  }));
  run_for(milliseconds(0));
  run_for(milliseconds(0));
  EXPECT_EQ(1, calls);
}

TEST_F(EventLoopTest, CallsForAPeerThatHungUp) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const base::UniqueFd reader(ends[0]);
  int calls = 0;
  ASSERT_TRUE(loop_.watch(reader.get(), [&] { ++calls; }));
  ::close(ends[1]);
  run_for(milliseconds(0));
  EXPECT_EQ(1, calls);
}

TEST_F(EventLoopTest, RefusesWhatCannotBeWatchedOrIsAlready) {
  const base::UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(EPERM, loop_.watch(file.get(), [] {}).error().code);
  EXPECT_EQ(EBADF, loop_.watch(-1, [] {}).error().code);
  const auto event = make_event(1);
  int first = 0;
  ASSERT_TRUE(loop_.watch(event.get(), [&] { ++first; }));
  EXPECT_EQ(EEXIST, loop_.watch(event.get(), [] {}).error().code);
  run_for(milliseconds(0));
  EXPECT_EQ(1, first);
}

TEST_F(EventLoopTest, UnwatchingWhatIsNotWatchedIsNothing) {
  loop_.unwatch(-1);
  loop_.unwatch(make_event(0).get());
  run_for(milliseconds(0));
}

}  // namespace
}  // namespace verbena::agent
