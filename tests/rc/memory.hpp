// Memory to register, and patterns in it that tell where bytes came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbena::rc {

enum class Backing : uint8_t {
  kPrivate,  // anonymous: peers reach it through its owner
  kShared,   // a sealed memfd, which peers can map
};

// Whole pages. Only address space until it is touched.
class Memory {
 public:
  Memory() = default;
  Memory(uint64_t length, Backing backing);  // throws std::runtime_error
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] uint64_t length() const { return length_; }
  // Takes pages out of it, once. Not to be given back twice: something else may live there by then.
  [[nodiscard]] int unmap(uint64_t offset, uint64_t length);

 private:
  void swap(Memory& other) {
    std::swap(data_, other.data_);
    std::swap(length_, other.length_);
    std::swap(mapped_, other.mapped_);
    std::swap(hole_, other.hole_);
    std::swap(hole_end_, other.hole_end_);
    std::swap(fd_, other.fd_);
  }
  std::byte* data_ = nullptr;
  uint64_t length_ = 0;
  uint64_t mapped_ = 0;
  uint64_t hole_ = 0;
  uint64_t hole_end_ = 0;
  int fd_ = -1;
};

// Bytes that depend on the seed and the place, and repeat only after 65,521.
void fill_pattern(std::byte* data, uint64_t length, uint64_t seed);
// Where they first differ; -1: nowhere.
[[nodiscard]] int64_t pattern_mismatch(const std::byte* data, uint64_t length, uint64_t seed);

}  // namespace verbena::rc
