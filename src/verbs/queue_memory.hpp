// Memory that a queue keeps its entries in: ours, or what the program's own allocator gives (parent domains).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/result.hpp"

namespace verbena::verbs {

// Told to the program's allocator, which may put them apart.
enum class QueueUse : uint64_t { kSendQueue = 1, kCompletionQueue = 2 };

class QueueAllocator {
 public:
  virtual ~QueueAllocator() = default;
  // Null: the program leaves it to us. ENOMEM: it has none.
  [[nodiscard]] virtual base::Result<void*> allocate(size_t size, size_t alignment, QueueUse use) = 0;
  virtual void release(void* memory, QueueUse use) = 0;
};

// Zeroed bytes. Given back where they came from, on the thread that destroys the queue.
class QueueMemory {
 public:
  static constexpr size_t kAlignment = 64;

  QueueMemory() = default;
  QueueMemory(QueueMemory&& other) noexcept { swap(other); }
  QueueMemory& operator=(QueueMemory&& other) noexcept {
    QueueMemory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~QueueMemory() {
    if (allocator_ != nullptr)
      allocator_->release(bytes_, use_);
    else
      std::free(bytes_);
  }

  // `allocator` may be null and outlives the memory.
  [[nodiscard]] static base::Result<QueueMemory> make(QueueAllocator* allocator, size_t size, QueueUse use);

  [[nodiscard]] std::byte* data() const { return bytes_; }
  // From the program's allocator.
  [[nodiscard]] bool programs() const { return allocator_ != nullptr; }

 private:
  void swap(QueueMemory& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(allocator_, other.allocator_);
    std::swap(use_, other.use_);
  }

  std::byte* bytes_ = nullptr;
  QueueAllocator* allocator_ = nullptr;  // null: the bytes are ours
  QueueUse use_ = QueueUse::kSendQueue;
};

}  // namespace verbena::verbs
