// What lies behind a range of addresses that a program registers: whether it may be accessed at all, and
// whether other processes could map the same memory. Slow path (it reads /proc/self/maps); any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "arena/segment.hpp"
#include "base/result.hpp"

namespace verbena::verbs {

// A file that another process of this user can map to reach the range.
struct Backing {
  int fd = -1;  // one of the program's, open for reading and writing; -1: memory that can't be shared
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t offset = 0;  // of the range's first byte in the file
  // Sealed against shrinking. Otherwise an owner that truncates it takes the pages from under its peers:
  // copies by mapping have to be the guarded ones (own_memory.hpp).
  bool fixed_size = false;

  [[nodiscard]] bool mappable() const { return fd >= 0; }
};

// As registration with an adapter would answer: EINVAL when the range wraps around (ib_umem_get), EFAULT when
// a piece of it isn't mapped or not with that access. An empty range is fine anywhere.
[[nodiscard]] base::Result<Backing> inspect_range(uint64_t address, uint64_t length, bool writable);

// A range of a peer's file in our address space. Not inherited over fork().
class PeerMapping {
 public:
  PeerMapping() = default;
  PeerMapping(arena::Mapping pages, size_t before, size_t size)
      : pages_(std::move(pages)), before_(before), size_(size) {}

  [[nodiscard]] std::byte* data() const { return pages_ ? pages_.data() + before_ : nullptr; }
  [[nodiscard]] size_t size() const { return size_; }
  explicit operator bool() const { return static_cast<bool>(pages_); }
  // In a fork()ed child, where the kernel has unmapped it already.
  void forget() { pages_.forget(); }

 private:
  arena::Mapping pages_;  // whole pages, around the range
  size_t before_ = 0;     // bytes of them before it
  size_t size_ = 0;
};

// Maps what a peer described by a Backing of its own. The number is only a hint: ESTALE when it names another
// file now, or none. It asks no more of the kernel than reading /proc/PID, which Yama's default permits.
[[nodiscard]] base::Result<PeerMapping> map_peer_file(pid_t pid, const Backing& backing, uint64_t length);

}  // namespace verbena::verbs
