// Shared segments: memfds without a name in any file system, so nothing is left behind by a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::arena {

// Who may write into a segment (DESIGN 2.3).
enum class Sharing : uint8_t {
  kOwnerWrites,  // tables: mappings made after the owner's are read-only
  kPeersWrite,   // rings: every word in them is untrusted
};

// A mapping of shared memory; not inherited over fork(), so that a child can't write into its parent's.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  // Gives the mapping up without unmapping: in a fork()ed child the kernel did that already.
  void forget() { data_ = nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct Segment {
  base::UniqueFd fd;
  Mapping mapping;
};

enum class Access : uint8_t { kRead, kReadWrite };

[[nodiscard]] base::Result<Mapping> map(int fd, size_t size, Access access);

// Size is fixed for good; pages cost memory only once touched.
[[nodiscard]] base::Result<Segment> create_sealed(const char* name, size_t size, Sharing sharing);

// The size of somebody else's segment, after checking that it carries the seals which `sharing` promises.
[[nodiscard]] base::Result<size_t> check_sealed(int fd, Sharing sharing, size_t max_size);

}  // namespace verbena::arena
