// How the responder's actions reach the memory of the process that owns a queue pair: plain copies where that
// process is ours, the kernel's help or a shared mapping where it is another.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace verbena::engine {

enum class Copied : uint8_t {
  kAll,
  kFaultHere,   // our own memory isn't there, or may not be accessed so
  kFaultThere,  // the owner's isn't
  kOwnerGone,   // the owner is dead or has called exec
};

// Programs poll on the last byte of what arrives: everything else must be there before it (FACTS 4).
enum class Tail : uint8_t {
  kAnyOrder,  // an inner chunk of a longer message
  kLast,      // the last 8 bytes are placed after all others
};

// Any thread may use one; each call is bounded by what it copies.
class MemoryAccessor {
 public:
  virtual ~MemoryAccessor() = default;
  // Both lists cover the same number of bytes. Addresses of `there` are the owner's.
  [[nodiscard]] virtual Copied write(std::span<const iovec> here, std::span<const iovec> there,
                                     Tail tail) = 0;
  [[nodiscard]] virtual Copied read(std::span<const iovec> here, std::span<const iovec> there, Tail tail) = 0;
};

}  // namespace verbena::engine
