// A process of this host that queue pairs of ours are connected to; we ourselves are one, too.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arena/inbox.hpp"
#include "arena/segment.hpp"
#include "base/lock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "local/process_memory.hpp"
#include "verbs/address_space.hpp"
#include "verbs/own_memory.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_owner.hpp"

namespace verbena::local {

class Neighbour : public verbs::QueueOwner {
 public:
  Neighbour(arena::ProcessArena arena, base::Slot theirs, uint32_t epoch, base::Slot ours);

  [[nodiscard]] base::Slot slot() const { return slot_; }
  [[nodiscard]] uint32_t epoch() const { return epoch_; }
  // Puts a letter into its inbox and has it read. False: the inbox is full.
  [[nodiscard]] bool send(const arena::Letter& letter);
  // Requests under way to it; see arena::kMostRequests. False: enough already.
  [[nodiscard]] bool begin_request();
  void end_request() { requests_.fetch_sub(1); }

 private:
  base::Slot slot_;
  uint32_t epoch_;
  base::Slot ours_;
  base::Lock inbox_lock_;
  arena::InboxWriter inbox_;
  std::atomic<uint32_t> requests_ = 0;
};

// What the host agent hands out of another process.
struct PeerDescription {
  base::Slot slot;
  uint32_t epoch = 0;
  pid_t pid = 0;
  base::UniqueFd tables;
  base::UniqueFd rings;
  base::UniqueFd wake;
  base::UniqueFd memory;
};

class Peer final : public Neighbour {
 public:
  // EPROTO: segments that aren't what they should be.
  [[nodiscard]] static base::Result<std::shared_ptr<Peer>> open(PeerDescription description, base::Slot ours);

  [[nodiscard]] engine::MemoryAccessor& memory() override { return memory_; }
  void wake_helper() override;
  void ring_channel(uint16_t cq) override;
  [[nodiscard]] verbs::HeldMemory mapped(uint32_t key, uint64_t address, uint64_t length) override;
  [[nodiscard]] verbs::HeldMemory atomic_target(const engine::AtomicRequest& request,
                                                const verbs::Region& region) override;
  // Hangs up with the process.
  [[nodiscard]] int wake_fd() const { return wake_.get(); }

 private:
  Peer(PeerDescription description, arena::Mapping tables, arena::Mapping rings, dev_t device,
       base::Slot ours);
  struct MappedRegion {
    uint64_t word = 0;  // of the entry it was made from
    uint64_t iova = 0;
    std::shared_ptr<verbs::PeerMapping> mapping;
  };
  struct Bell {
    int number = -1;
    uint64_t inode = 0;
    base::GuardedFd pipe;
  };
  [[nodiscard]] int open_bell(int number, uint64_t inode);

  arena::Mapping tables_;
  arena::Mapping rings_;
  dev_t device_;  // where memfds live
  pid_t pid_;
  base::GuardedFd wake_;
  ProcessMemory memory_;
  std::mutex mutex_;  // all below
  std::map<uint32_t, MappedRegion> regions_;
  std::vector<Bell> bells_;
};

class Self final : public Neighbour {
 public:
  // `wake` is called to have our own helper thread look around.
  Self(arena::ProcessArena arena, uint32_t epoch, verbs::Process& process, std::function<void()> wake)
      : Neighbour(arena, process.slot(), epoch, process.slot()), process_(process), wake_(std::move(wake)) {}

  [[nodiscard]] engine::MemoryAccessor& memory() override { return memory_; }
  void wake_helper() override;
  [[nodiscard]] arena::HazardLane& hazard_lane(base::Slot, unsigned lane) override {
    return process_.regions().own_lane(lane);
  }
  // Whether whoever leaves something for the helper thread must wake it.
  void set_helper_sleeps(bool sleeps);
  // Peers wake it, our own program needn't: it polls.
  void set_helper_rests();
  void wake_resting_helper() { wake_(); }
  void ring_channel(uint16_t cq) override;
  [[nodiscard]] bool empty_rings(uint16_t cq) override { return process_.empty_rings(cq); }
  [[nodiscard]] verbs::HeldMemory mapped(uint32_t, uint64_t, uint64_t) override { return nullptr; }
  [[nodiscard]] verbs::HeldMemory atomic_target(const engine::AtomicRequest& request,
                                                const verbs::Region& region) override;

 private:
  verbs::OwnMemory memory_;
  verbs::Process& process_;
  std::function<void()> wake_;
  std::atomic<bool> sleeps_ = true;
};

}  // namespace verbena::local
