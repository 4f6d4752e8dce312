#include "local_path/order_race.hpp"

#include <atomic>
#include <cstring>
#include <thread>

namespace verbena::local_path {
namespace {

uint64_t load(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
}

void store(std::byte* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
}

std::byte load_byte(const std::byte* at) {
  return static_cast<std::byte>(
      __atomic_load_n(reinterpret_cast<const unsigned char*>(at), __ATOMIC_ACQUIRE));
}

// Never the same in two rounds that follow each other, and never 0.
std::byte value_of(uint64_t round) { return static_cast<std::byte>(round % 251 + 1); }

// The last byte is `value`: are all others? From the end on, where a stale one is most likely.
bool whole(const std::byte* data, size_t size, std::byte value) {
  for (size_t i = size; i-- > 0;)
    if (data[i] != value) return false;
  return true;
}

bool succeeded(const Queue& queue) {
  ibv_wc one;
  int got = 0;
  for (Spinner spinner; (got = ibv_poll_cq(queue.cq, 1, &one)) == 0;) spinner.wait();
  return got == 1 && one.status == IBV_WC_SUCCESS;
}

}  // namespace

RaceReport watch(const RacePlan& plan) {
  RaceReport report;
  const std::byte* data = plan.memory->data + kWatchedAt + plan.offset;
  const int64_t deadline = now_us() + plan.milliseconds * 1000;
  for (uint64_t round = 1; round <= plan.rounds; ++round) {
    const std::byte value = value_of(round);
    Spinner spinner;
    for (uint64_t spins = 1; load_byte(data + plan.size - 1) != value; ++spins) {
      if (load(plan.memory->data + kStopAt) != 0) return report;
      if (spins % 8192 == 0 && now_us() > deadline) return report;
      spinner.wait();
    }
    if (!whole(data, plan.size, value)) ++report.violations;
    ++report.rounds;
    store(plan.memory->data + kSeenAt, round);
  }
  return report;
}

RaceReport write_rounds(const RacePlan& plan) {
  RaceReport report;
  const Memory& memory = *plan.memory;
  const auto run = [&](const Work& work) {
    if (post_send(plan.pair, work) == 0 && succeeded(plan.queue)) return true;
    ++report.failures;
    return false;
  };
  const Work seen{.opcode = IBV_WR_RDMA_READ,
                  .memory = &memory,
                  .offset = 0,
                  .length = 8,
                  .remote = plan.remote + kSeenAt,
                  .key = plan.key};
  const Work write{.opcode = IBV_WR_RDMA_WRITE,
                   .memory = &memory,
                   .offset = kWatchedAt,
                   .length = plan.size,
                   .remote = plan.remote + kWatchedAt + plan.offset,
                   .key = plan.key};
  const int64_t deadline = now_us() + plan.milliseconds * 1000;
  for (uint64_t round = 1; round <= plan.rounds && now_us() < deadline; ++round) {
    std::memset(memory.data + kWatchedAt, static_cast<int>(value_of(round)), plan.size);
    if (!run(write)) return report;
    Spinner spinner;
    do {
      if (!run(seen)) return report;
      spinner.wait();
    } while (load(memory.data) < round && now_us() < deadline);
    report.rounds = load(memory.data);
  }
  store(memory.data, 1);
  (void)run({.opcode = IBV_WR_RDMA_WRITE,
             .memory = &memory,
             .offset = 0,
             .length = 8,
             .remote = plan.remote + kStopAt,
             .key = plan.key});
  return report;
}

RaceReport read_rounds(const RacePlan& plan) {
  RaceReport report;
  const std::byte* data = plan.memory->data + kWatchedAt + plan.offset;
  std::atomic<uint64_t> seen = 0;
  std::atomic<bool> stop = false;
  uint64_t violations = 0;
  const auto value = [](uint64_t round) { return static_cast<std::byte>(round % kReadPages + 1); };
  std::thread watcher([&] {
    for (uint64_t round = 1; !stop.load(); ++round) {
      for (Spinner spinner; load_byte(data + plan.size - 1) != value(round); spinner.wait())
        if (stop.load(std::memory_order_relaxed)) return;
      if (!whole(data, plan.size, value(round))) ++violations;
      seen.store(round, std::memory_order_release);
    }
  });
  const int64_t deadline = now_us() + plan.milliseconds * 1000;
  for (uint64_t round = 1; round <= plan.rounds && now_us() < deadline; ++round) {
    const Work work{.opcode = IBV_WR_RDMA_READ,
                    .memory = plan.memory,
                    .offset = kWatchedAt + plan.offset,
                    .length = plan.size,
                    .remote = plan.remote + round % kReadPages * kReadPage,
                    .key = plan.key};
    if (post_send(plan.pair, work) != 0 || !succeeded(plan.queue)) {
      ++report.failures;
      break;
    }
    for (Spinner spinner; seen.load(std::memory_order_acquire) < round && now_us() < deadline;)
      spinner.wait();
    ++report.rounds;
  }
  stop = true;
  watcher.join();
  report.violations = violations;
  return report;
}

}  // namespace verbena::local_path
