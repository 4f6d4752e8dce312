#include "verbs/queue_memory.hpp"

#include <cerrno>
#include <cstring>

namespace verbena::verbs {

base::Result<QueueMemory> QueueMemory::make(QueueAllocator* allocator, size_t size, QueueUse use) {
  QueueMemory made;
  made.use_ = use;
  if (allocator != nullptr) {
    const auto given = allocator->allocate(size, kAlignment, use);
    if (!given) return std::unexpected(given.error());
    if (*given != nullptr) {
      made.bytes_ = static_cast<std::byte*>(*given);
      made.allocator_ = allocator;
      std::memset(made.bytes_, 0, size);
      return made;
    }
  }
  // Pages that nothing was ever put into cost nothing.
  made.bytes_ = static_cast<std::byte*>(std::calloc(1, size));
  if (made.bytes_ == nullptr) return base::fail(ENOMEM, "out of memory for a queue");
  return made;
}

}  // namespace verbena::verbs
