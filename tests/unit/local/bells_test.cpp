// Bells of our own process: whoever rings one may have read its descriptor just before it was closed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "arena/segment.hpp"
#include "local/neighbour.hpp"
#include "verbs/completion_channel.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/process.hpp"

namespace verbena::local {
namespace {

constexpr base::Slot kSlot{3};

class Bells : public testing::Test {
 protected:
  arena::Segment tables_ =
      std::move(*arena::create_sealed(arena::kTablesName, arena::kTablesSize, arena::Sharing::kOwnerWrites));
  arena::Segment rings_ =
      std::move(*arena::create_sealed(arena::kRingsName, arena::kRingsSize, arena::Sharing::kPeersWrite));
  arena::ProcessArena arena_{tables_.mapping.data(), rings_.mapping.data()};
  verbs::Process process_{arena_, kSlot};
  Self self_{arena_, 1, process_, [] {}};
};

TEST_F(Bells, AQueueIsClosedWhenNobodyRingsIt) {
  auto channel = std::move(*verbs::CompletionChannel::create());
  auto queue = *verbs::CompletionQueue::create(process_, {.cqe = 1, .channel = channel.get()});
  std::unique_lock ringing(process_.ringing());
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    queue->close();
    closed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(closed);
  ringing.unlock();
  closer.join();
}

TEST_F(Bells, WhoRingsIsSeen) {
  auto channel = std::move(*verbs::CompletionChannel::create());
  auto queue = *verbs::CompletionQueue::create(process_, {.cqe = 1, .channel = channel.get()});
  std::unique_lock ringing(process_.ringing());
  std::thread ringer([&] { self_.ring_channel(queue->index()); });
  pollfd rung{channel->fd(), POLLIN, 0};
  EXPECT_EQ(0, ::poll(&rung, 1, 50)) << "it rang while another did";
  ringing.unlock();
  ringer.join();
  EXPECT_EQ(1, ::poll(&rung, 1, 0));
}

// The moment is short: tsan sees each time whether something keeps the two apart, others seldom.
TEST_F(Bells, NobodyRingsADescriptorThatIsAnothersByNow) {
  std::atomic<int> number = -1;
  std::atomic<bool> ends = false;
  std::thread ringer([&] {
    for (; !ends; std::this_thread::yield())
      if (const int cq = number; cq >= 0) self_.ring_channel(static_cast<uint16_t>(cq));
  });
  unsigned strangers = 0;
  for (int i = 0; i < 3'000; ++i) {
    auto channel = std::move(*verbs::CompletionChannel::create());
    auto queue = *verbs::CompletionQueue::create(process_, {.cqe = 1, .channel = channel.get()});
    number = queue->index();
    std::this_thread::yield();
    queue->close();
    channel.reset();
    int theirs[2];  // they get the numbers that have become free
    ASSERT_EQ(0, ::pipe2(theirs, O_NONBLOCK));
    std::this_thread::yield();
    char bytes[64];
    if (::read(theirs[0], bytes, sizeof bytes) > 0) ++strangers;
    ::close(theirs[0]);
    ::close(theirs[1]);
  }
  ends = true;
  ringer.join();
  EXPECT_EQ(0u, strangers);
}

}  // namespace
}  // namespace verbena::local
