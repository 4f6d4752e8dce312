// What a worker has of the verbs: a device, memory, completion queues, queue pairs, and short ways to use
// them.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace verbena::local_path {

// Where a queue pair is found; "QPN PSN GID" as text.
struct Address {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid{};
};
std::ostream& operator<<(std::ostream& out, const Address& address);
std::istream& operator>>(std::istream& in, Address& address);

struct Rules {
  int timeout = 14;  // 67 ms
  int retries = 7;
  int rnr_retries = 7;
};

struct Memory {
  std::byte* data = nullptr;
  size_t size = 0;
  int file = -1;  // what it is a mapping of; -1: private memory
  ibv_mr* mr = nullptr;

  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data); }
};
// Shared: a memfd that can't shrink, which peers may map. Otherwise private, like a heap's.
[[nodiscard]] Memory map_memory(size_t size, bool shared);
void unmap(Memory& memory);

struct Queue {
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
};

// What a work request says, with defaults.
struct Work {
  uint64_t id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  const Memory* memory = nullptr;
  size_t offset = 0;
  size_t length = 0;
  uint64_t remote = 0;
  uint32_t key = 0;
  uint64_t first = 0;   // to compare with, or to add
  uint64_t second = 0;  // to swap in
};

class Rig {
 public:
  // Ends the program, with a line that says so, where there is no device.
  static Rig open();

  // 0 or an errno, as all below.
  int register_memory(Memory& memory) const;
  int make_queue(int entries, bool channel, Queue& queue) const;
  int make_pair(const Queue& queue, unsigned depth, ibv_qp*& pair) const;
  // From any state over RESET to RTS. `step` says where it failed.
  int connect(ibv_qp* pair, uint32_t own_psn, const Address& peer, const Rules& rules,
              const char*& step) const;
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* domain() const { return domain_; }

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_gid gid_{};
};

int move_to(ibv_qp* pair, ibv_qp_state state);
int post_send(ibv_qp* pair, const Work& work);
int post_receive(ibv_qp* pair, const Work& work);

// Takes completions until there are `count` or the time is over.
std::vector<ibv_wc> poll_for(const Queue& queue, size_t count, int64_t milliseconds);
// The same asleep: by events of the queue's channel.
std::vector<ibv_wc> wait_for(const Queue& queue, size_t count, int64_t milliseconds);
// Sleeps until an event of the queue, which must be armed, and takes it; false: the time was over first.
bool sleep_on(const Queue& queue, int milliseconds);

// How many bytes have that value. Fast where long pieces have the same.
[[nodiscard]] size_t count_of(const std::byte* data, size_t length, std::byte value);

[[nodiscard]] int64_t now_us();

// For loops that look for races: they spin as long as the other side can be expected to run, then let it.
class Spinner {
 public:
  void wait();

 private:
  unsigned spins_ = 0;
};

}  // namespace verbena::local_path
