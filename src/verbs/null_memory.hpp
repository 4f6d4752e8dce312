// What is behind a null region (ibv_alloc_null_mr): zeros to read, and a place where writes are lost. Both
// are plain addresses, so that whoever copies, here or in a peer, need not know.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace verbena::verbs {

class NullMemory {
 public:
  // Address space for the longest message, and a few MiB of memory at most.
  [[nodiscard]] static base::Result<NullMemory> create();

  [[nodiscard]] uint64_t zeros() const { return zeros_; }
  [[nodiscard]] uint64_t sink() const { return sink_; }

 private:
  uint64_t zeros_ = 0;
  uint64_t sink_ = 0;
};

}  // namespace verbena::verbs
