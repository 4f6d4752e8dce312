#include "local_path/reuse_race.hpp"

#include <cstring>

namespace verbena::local_path {
namespace {

constexpr std::byte kOurs{0xcc};

void spin_us(int64_t microseconds) {
  for (const int64_t end = now_us() + microseconds; now_us() < end;) {
  }
}

}  // namespace

ReuseReport reuse_buffers(ibv_qp* pair, const Queue& queue, const Memory& memory, int64_t milliseconds) {
  ReuseReport report;
  const Work receive{.memory = &memory, .length = kReuseBytes};
  const int64_t end = now_us() + milliseconds * 1000;
  (void)post_receive(pair, receive);
  for (Spinner spinner; now_us() < end; spinner.wait()) {
    ibv_wc one;
    if (ibv_poll_cq(queue.cq, 1, &one) != 1) continue;
    spinner = {};
    if (one.status != IBV_WC_SUCCESS) {
      ++report.failures;
      break;
    }
    std::memset(memory.data, static_cast<int>(kOurs), one.byte_len);
    spin_us(5);
    if (count_of(memory.data, one.byte_len, kOurs) != one.byte_len) ++report.violations;
    ++report.rounds;
    (void)post_receive(pair, receive);
  }
  return report;
}

ReuseReport send_and_fetch(ibv_qp* pair, const Queue& queue, const Memory& memory, uint64_t remote,
                           uint32_t key, int64_t milliseconds) {
  ReuseReport report;
  std::memset(memory.data, 0x11, kReuseBytes);
  const int64_t end = now_us() + milliseconds * 1000;
  for (size_t length = 1; now_us() < end; length = length * 7 % kReuseBytes + 1) {
    const bool reads = length % 2 == 0;
    (void)post_send(pair, {.memory = &memory, .length = length});
    (void)post_send(pair, {.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD,
                           .memory = &memory,
                           .offset = kReuseReadAt,
                           .length = 8,
                           .remote = remote + kReuseReadAt,
                           .key = key});
    const auto taken = poll_for(queue, 2, 200);
    // The receiver ended before us: the last message waits for a receive that never comes.
    if (taken.size() < 2) break;
    for (const auto& one : taken)
      if (one.status != IBV_WC_SUCCESS) ++report.failures;
    if (report.failures > 0) break;
    ++report.rounds;
  }
  return report;
}

}  // namespace verbena::local_path
