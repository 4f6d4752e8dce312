#include "local_path/churn.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <thread>

namespace verbena::local_path {
namespace {

constexpr std::byte kCanary{0xcc};
constexpr uint32_t kPsn = 7;
// Nobody is dead here: what times out is a bug, and takes its time.
constexpr Rules kPatient{.timeout = 16, .retries = 7, .rnr_retries = 7};
// A receiver whose receive was at fault is in ERR and answers no more.
constexpr Rules kImpatient{.timeout = 10, .retries = 1, .rnr_retries = 7};

// A connection whose two ends meet on the board, again after each failure.
class Line {
 public:
  Line(const Rig& rig, Board& board, size_t seat, bool target, const Rules& rules)
      : rig_(rig), board_(board), seat_(board.seats[seat]), target_(target), rules_(rules) {
    if (rig.make_queue(256, false, queue_) != 0 || rig.make_pair(queue_, 64, pair_) != 0) std::abort();
    (target ? seat_.target : seat_.requester) = {pair_->qp_num, kPsn, rig.gid()};
    seat_.told.fetch_or(target ? 1 : 2);
  }

  // The requester's: false when the test is over.
  bool connect_anew() {
    if (!connect()) std::abort();
    const uint32_t number = seat_.requested.fetch_add(1) + 1;
    for (Spinner spinner; seat_.connected.load() != number; spinner.wait())
      if (board_.stop.load() != 0) return false;
    return true;
  }
  // The target's, called again and again.
  bool answer() {
    const uint32_t number = seat_.requested.load();
    if (number == seat_.connected.load()) return false;
    if (!connect()) std::abort();
    return true;
  }
  void answered() { seat_.connected.store(seat_.requested.load()); }

  [[nodiscard]] ibv_qp* pair() const { return pair_; }
  [[nodiscard]] const Queue& queue() const { return queue_; }

 private:
  bool connect() {
    const uint32_t both = 3;
    for (; seat_.told.load() != both; ::usleep(100))
      if (board_.stop.load() != 0) return true;
    const char* step = "";
    return rig_.connect(pair_, kPsn, target_ ? seat_.requester : seat_.target, rules_, step) == 0;
  }

  const Rig& rig_;
  Board& board_;
  Board::Seat& seat_;
  bool target_;
  Rules rules_;
  Queue queue_;
  ibv_qp* pair_ = nullptr;
};

void pause_us(int64_t microseconds) {
  for (const int64_t end = now_us() + microseconds; now_us() < end;) ::sched_yield();
}

// The program has its memory back: nobody else may write to it now. Sometimes it is another mapping by then.
uint64_t guard(Memory& memory, bool replaced, int64_t microseconds) {
  if (replaced && ::mmap(memory.data, memory.size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    std::abort();
  std::memset(memory.data, static_cast<int>(kCanary), memory.size);
  pause_us(microseconds);
  return memory.size - count_of(memory.data, memory.size, kCanary);
}

void note(ChurnReport& report, int status) {
  ++report.other;
  report.status = status;
}

void deregister(Memory& memory, ChurnReport& report) {
  const int64_t begin = now_us();
  if (ibv_dereg_mr(memory.mr) != 0) std::abort();
  memory.mr = nullptr;
  report.longest_us = std::max(report.longest_us, now_us() - begin);
  ++report.rounds;
}

}  // namespace

Board& open_board(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, sizeof(Board)) != 0) std::abort();
  void* data = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) std::abort();
  return *static_cast<Board*>(data);
}

ChurnReport churn_target(const Rig& rig, Board& board, int64_t milliseconds, uint64_t seed) {
  ChurnReport report;
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<Line>> lines;
  for (size_t seat = 0; seat < kChurnPeers; ++seat)
    lines.push_back(std::make_unique<Line>(rig, board, seat, true, kPatient));
  std::thread doorman([&] {
    for (; board.stop.load() == 0; ::usleep(20))
      for (auto& line : lines)
        if (line->answer()) line->answered();
  });
  const int64_t end = now_us() + milliseconds * 1000;
  for (uint32_t number = 1; now_us() < end; ++number) {
    Memory memory = map_memory(kChurnBytes, random() % 2 == 0);
    std::memset(memory.data, 1, memory.size);
    if (rig.register_memory(memory) != 0) std::abort();
    board.address.store(memory.address());
    board.offer.store(uint64_t{memory.mr->rkey} << 32 | number);
    pause_us(static_cast<int64_t>(random() % 400));
    deregister(memory, report);
    report.violations += guard(memory, random() % 2 == 0, 100);
    unmap(memory);
  }
  board.stop.store(1);
  doorman.join();
  return report;
}

ChurnReport churn_peer(const Rig& rig, Board& board, size_t seat, uint64_t seed) {
  ChurnReport report;
  std::mt19937_64 random(seed);
  Line line(rig, board, seat, false, kPatient);
  Memory memory = map_memory(kChurnBytes, false);
  if (rig.register_memory(memory) != 0) std::abort();
  std::memset(memory.data, 0xab, memory.size);
  bool connected = false;
  while (board.stop.load() == 0) {
    const uint64_t offer = board.offer.load();
    const uint64_t address = board.address.load();
    // The number changes with the address; read between the two, it would be a wrong one.
    if (offer == 0 || offer != board.offer.load()) continue;
    if (!connected && !line.connect_anew()) break;
    connected = true;
    const size_t length = 1 + random() % (random() % 4 == 0 ? kChurnBytes : 4096);
    const size_t offset = random() % (kChurnBytes - length + 1);
    const Work work{.opcode = random() % 3 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                    .memory = &memory,
                    .offset = offset,
                    .length = length,
                    .remote = address + offset,
                    .key = static_cast<uint32_t>(offer >> 32)};
    if (const int error = post_send(line.pair(), work); error != 0) {
      note(report, 1000 + error);
      break;
    }
    ++report.rounds;
    const auto taken = poll_for(line.queue(), 1, 20'000);
    const int status = taken.empty() ? -1 : taken[0].status;
    if (status == IBV_WC_SUCCESS)
      ++report.good;
    else if (status == IBV_WC_REM_ACCESS_ERR)
      ++report.refused;
    else if (board.stop.load() == 0)  // its own peer may have left when the test is over
      note(report, status);
    connected = status == IBV_WC_SUCCESS;
  }
  return report;
}

ChurnReport churn_receiver(const Rig& rig, Board& board, int64_t milliseconds, uint64_t seed) {
  constexpr size_t kReceives = 32;
  constexpr size_t kReceive = 8192;
  ChurnReport report;
  std::mt19937_64 random(seed);
  Line line(rig, board, 0, true, kImpatient);
  // The poller is who places what arrived in the ring: it must not do so once the region is gone.
  std::thread poller([&] {
    ibv_wc taken[16];
    for (Spinner spinner; board.stop.load() == 0; spinner.wait())
      if (ibv_poll_cq(line.queue().cq, 16, taken) > 0) spinner = {};
  });
  const int64_t end = now_us() + milliseconds * 1000;
  while (now_us() < end) {
    if (!line.answer()) {
      ::sched_yield();
      continue;
    }
    Memory memory = map_memory(kReceives * kReceive, false);
    if (rig.register_memory(memory) != 0) std::abort();
    for (size_t i = 0; i < kReceives; ++i)
      (void)post_receive(line.pair(), {.memory = &memory, .offset = i * kReceive, .length = kReceive});
    line.answered();
    pause_us(static_cast<int64_t>(random() % 60));
    deregister(memory, report);
    report.violations += guard(memory, false, 50);
    unmap(memory);
  }
  board.stop.store(1);
  poller.join();
  return report;
}

ChurnReport churn_sender(const Rig& rig, Board& board, size_t seat, uint64_t seed) {
  ChurnReport report;
  std::mt19937_64 random(seed);
  Line line(rig, board, seat, false, kImpatient);
  Memory memory = map_memory(8192, false);
  if (rig.register_memory(memory) != 0) std::abort();
  std::memset(memory.data, 0xab, memory.size);
  while (line.connect_anew()) {
    int status = IBV_WC_SUCCESS;
    for (size_t i = 0; i < 32 && status == IBV_WC_SUCCESS && board.stop.load() == 0; ++i) {
      const size_t length = 1 + random() % memory.size;
      if (post_send(line.pair(), {.memory = &memory, .length = length}) != 0) break;
      ++report.rounds;
      const auto taken = poll_for(line.queue(), 1, 20'000);
      status = taken.empty() ? -1 : taken[0].status;
      if (status == IBV_WC_SUCCESS) ++report.good;
      // The receive's memory has gone, or the message before met that and the peer is in ERR by now.
      else if (status == IBV_WC_REM_OP_ERR || status == IBV_WC_RETRY_EXC_ERR)
        ++report.refused;
      else if (board.stop.load() == 0)
        note(report, status);
    }
  }
  return report;
}

std::ostream& operator<<(std::ostream& out, const ChurnReport& report) {
  return out << report.rounds << ' ' << report.good << ' ' << report.refused << ' ' << report.other << ' '
             << report.status << ' ' << report.violations << ' ' << report.longest_us;
}

}  // namespace verbena::local_path
