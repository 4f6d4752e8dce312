// A target's creator is killed, then one of two owners of shared receive queues: the others go on.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "party.hpp"

namespace verbena::xrc {
namespace {

// What the processes tell each other.
struct Board {
  std::atomic<uint32_t> initiator[2];
  std::atomic<uint32_t> target[2];
  std::atomic<uint32_t> connected;
  std::atomic<uint32_t> srq[2];
  std::atomic<uint32_t> received[2];
};

bool wait_for(const std::atomic<uint32_t>& word, uint32_t least = 1) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (word.load() < least) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(200);
  }
  return true;
}

template <typename Body>
pid_t start(Body body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  body();
  std::_Exit(0);
}

void create_targets(Board& board, int fd) {
  Party party(fd);
  for (unsigned i = 0; i < 2; ++i) {
    ibv_qp* target = party.make_target();
    if (target == nullptr) return;
    board.target[i] = target->qp_num;
    if (!wait_for(board.initiator[i]) || party.connect(target, board.initiator[i]) != 0) return;
    ++board.connected;
  }
  ::pause();
}

void own_queue(Board& board, int fd, unsigned number) {
  Party party(fd);
  for (unsigned i = 0; i < 2; ++i)
    if (!wait_for(board.target[i]) || party.open_target(board.target[i]) == nullptr) return;
  for (unsigned i = 0; i < 32; ++i) (void)party.post_receive(i, 0, 4096);
  board.srq[number] = party.srq_number();
  while (party.received(60000).status == IBV_WC_SUCCESS) ++board.received[number];
}

TEST(Killed, CreatorAndOwner) {
  FILE* file = std::tmpfile();
  ASSERT_NE(nullptr, file);
  const int fd = ::fileno(file);
  auto* board = static_cast<Board*>(
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(MAP_FAILED, static_cast<void*>(board));
  // Before this process opens a device.
  const pid_t creator = start([&] { create_targets(*board, fd); });
  const pid_t owners[] = {start([&] { own_queue(*board, fd, 0); }), start([&] { own_queue(*board, fd, 1); })};
  const auto end = [](pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  };
  {
    Party party(-1);
    ASSERT_NE(nullptr, party.srq());
    ibv_qp* initiators[] = {party.make_initiator(), party.make_initiator()};
    for (unsigned i = 0; i < 2; ++i) {
      ASSERT_NE(nullptr, initiators[i]);
      board->initiator[i] = initiators[i]->qp_num;
      ASSERT_TRUE(wait_for(board->target[i]));
    }
    ASSERT_TRUE(wait_for(board->connected, 2));
    for (unsigned i = 0; i < 2; ++i) {
      ASSERT_EQ(0, party.connect(initiators[i], board->target[i]));
      ASSERT_TRUE(wait_for(board->srq[i]));
    }
    const auto send = [&](unsigned from, unsigned to) {
      EXPECT_EQ(0, party.post(initiators[from], 1, {.srq = board->srq[to]}));
      return party.sent().status;
    };
    for (unsigned from = 0; from < 2; ++from)
      for (unsigned to = 0; to < 2; ++to) ASSERT_EQ(IBV_WC_SUCCESS, send(from, to)) << from << to;
    end(creator);
    ::usleep(100'000);
    for (unsigned from = 0; from < 2; ++from)
      for (unsigned to = 0; to < 2; ++to) ASSERT_EQ(IBV_WC_SUCCESS, send(from, to)) << from << to;
    EXPECT_TRUE(wait_for(board->received[0], 4));
    EXPECT_TRUE(wait_for(board->received[1], 4));
    end(owners[0]);
    ::usleep(100'000);
    EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, send(0, 0)) << "nobody has that queue any more";
    EXPECT_EQ(IBV_WC_SUCCESS, send(1, 1)) << "the other connection goes on";
    EXPECT_TRUE(wait_for(board->received[1], 5));
  }
  end(owners[1]);
  std::fclose(file);
}

}  // namespace
}  // namespace verbena::xrc
