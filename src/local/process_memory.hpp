// The memory of another process, reached without its help: it may be asleep or stopped, which is what
// one-sided means. Two ways, chosen by what is permitted and by cost:
//
// - its memory file, a /proc/self/mem that the owner opened and handed over. It is bound to the address
// space:
//   after exec or death it reads and writes nothing, and a reused pid doesn't matter. Yama doesn't forbid it.
// - process_vm_*, which names the owner by pid. It takes many pieces in one call and copies once, not twice.
//
// A pid may come to name another program, so process_vm_* is used only while the memory file has shown within
// the last 50 us that the owner is still there; an exec takes longer than that to put a program in its place.
//
// Page protection: the memory file overrides it on private pages, and where process_vm_* meets a fault the
// memory file has the last word. So memory that was registered and then write-protected is still written, as
// an adapter with pinned pages would: access is checked at registration.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "base/unique_fd.hpp"
#include "engine/memory_accessor.hpp"
#include "verbs/own_memory.hpp"

namespace verbena::local {

class ProcessMemory final : public engine::MemoryAccessor {
 public:
  // `memory` is the owner's memory file; it may be empty, then process_vm_* has to do for all, and only the
  // caller knows whether the pid is still the owner's.
  ProcessMemory(pid_t pid, base::UniqueFd memory);

  // Finds out whether process_vm_* is permitted, by one byte at an address that the owner is known to have.
  // Until then, and when it isn't, the memory file does all.
  void probe(uint64_t readable_address);
  [[nodiscard]] bool permitted() const { return permitted_.load(std::memory_order_relaxed); }

  // kOwnerGone also when neither way is left.
  [[nodiscard]] engine::Copied write(std::span<const iovec> here, std::span<const iovec> there,
                                     engine::Tail tail) override;
  [[nodiscard]] engine::Copied read(std::span<const iovec> here, std::span<const iovec> there,
                                    engine::Tail tail) override;

 private:
  struct Transfer;
  [[nodiscard]] engine::Copied copy(Transfer transfer);
  [[nodiscard]] engine::Copied copy_by_file(Transfer& transfer, int memory);
  [[nodiscard]] engine::Copied copy_by_pid_alone(Transfer& transfer);

  const pid_t pid_;
  const base::GuardedFd memory_;
  std::atomic<bool> permitted_ = false;
  std::atomic<uint64_t> seen_alive_ = 0;  // by the memory file, on ProofClock
};

}  // namespace verbena::local
